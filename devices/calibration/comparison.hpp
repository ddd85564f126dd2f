#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "devices/calibration/measure.hpp"
#include "devices/device_config.hpp"

namespace kvreplay {

/// A published table of what a device did, and the preset over which it is laid.
struct MeasuredTable {
  struct Row {
    std::uint64_t bytes = 0;  ///< a request
    std::uint32_t depth = 0;  ///< outstanding requests
    double value = 0;         ///< of the table's quantity
  };

  std::string name;
  std::string title;   ///< device and workload
  std::string source;  ///< where it was published
  std::string
      assumptions;     ///< what the publication does not say and we had to assume; may be empty
  std::string preset;  ///< a name in configs/devices
  std::vector<std::pair<std::string, std::string>> changes;  ///< of the preset's parameters
  bool fitted = false;                ///< the preset was fitted to it; otherwise it is held out
  std::string quantity;               ///< "mb_s", "mib_s", "iops" or "mean_us"
  Workload workload;                  ///< all but bytes and depth
  double allowed_median_percent = 0;  ///< the median error that the tests allow
  std::vector<Row> rows;

  [[nodiscard]] static MeasuredTable load(const std::string& file);
  [[nodiscard]] static MeasuredTable parse(const ConfigNode& node);
};

struct ComparedRow {
  MeasuredTable::Row measured;
  double model = 0;  ///< of the table's quantity
  [[nodiscard]] double error_percent() const { return 100 * (model / measured.value - 1); }
};

/// What the model makes of each row. `preset` is the preset's file, to which the table's changes
/// are applied.
[[nodiscard]] std::vector<ComparedRow> compare(const ConfigNode& preset, const MeasuredTable& table,
                                               int threads);

/// Of the absolute errors.
[[nodiscard]] double median_error_percent(const std::vector<ComparedRow>& rows);

}  // namespace kvreplay
