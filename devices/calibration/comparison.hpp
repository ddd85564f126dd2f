#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "devices/calibration/measure.hpp"
#include "devices/device_config.hpp"

namespace kvreplay {

/// A published table of a device's performance, and the preset that is compared with it.
struct MeasuredTable {
  struct Row {
    std::uint64_t bytes = 0;  ///< per request
    std::uint32_t depth = 0;  ///< outstanding requests
    double value = 0;         ///< of the table's `quantity`
  };

  std::string name;
  std::string title;        ///< device and workload
  std::string source;       ///< where it was published
  std::string assumptions;  ///< what the publication omits and is assumed here; may be empty
  std::string preset;       ///< a name in configs/devices
  std::vector<std::pair<std::string, std::string>> changes;  ///< of the preset's parameters
  bool fitted = false;   ///< the preset was fitted to this table; otherwise it is held out
  std::string quantity;  ///< "mb_s", "mib_s", "iops" or "mean_us"
  Workload workload;     ///< everything except bytes and depth
  double allowed_median_percent = 0;  ///< largest median error that the tests allow
  std::vector<Row> rows;

  [[nodiscard]] static MeasuredTable load(const std::string& file);
  [[nodiscard]] static MeasuredTable parse(const ConfigNode& node);
};

struct ComparedRow {
  MeasuredTable::Row measured;
  double model = 0;  ///< of the table's `quantity`
  [[nodiscard]] double error_percent() const { return 100 * (model / measured.value - 1); }
};

/// What the model predicts for each row. `preset` is the preset's file, to which the table's
/// changes are applied.
[[nodiscard]] std::vector<ComparedRow> compare(const ConfigNode& preset, const MeasuredTable& table,
                                               int threads);

/// The median of the absolute errors.
[[nodiscard]] double median_error_percent(const std::vector<ComparedRow>& rows);

}  // namespace kvreplay
