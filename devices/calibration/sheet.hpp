#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "devices/calibration/measure.hpp"

namespace kvreplay {

/// What a data sheet says of a device, and how it was measured. A number that the sheet does not
/// have is left out.
struct DataSheet {
  /// "read=4200MB/s,random_read=500kIOPS,latency=60us": KEY=VALUE, separated by commas. Throws
  /// UserError at `place` for an unknown key, a value without its unit, or no rate at all.
  [[nodiscard]] static DataSheet parse(const std::string& text, const SourceLocation& place);
  /// "read, write, ...", with what each means: for help texts.
  [[nodiscard]] static std::string keys_text();

  std::optional<double> read_mb_s{};             ///< in sequence
  std::optional<double> write_mb_s{};            ///< in sequence, into the write booster if any
  std::optional<double> sustained_write_mb_s{};  ///< in sequence, once the write booster is full
  std::optional<double> random_read_iops{};
  std::optional<double> random_write_iops{};
  std::optional<double> latency_us{};        ///< of one random read at depth 1
  std::optional<double> write_latency_us{};  ///< of one random write at depth 1
  std::uint64_t size = 128 << 10;            ///< of requests in sequence, bytes
  std::uint32_t depth = 32;                  ///< outstanding requests in sequence
  std::uint64_t random_size = 4096;          ///< of random requests, bytes
  /// Outstanding random requests; none: 32, or as many as the rate takes (sheets are measured with
  /// several threads).
  std::optional<std::uint32_t> random_depth{};
};

/// One number of the sheet, and what the solved model gives.
struct SheetPoint {
  std::string key;   ///< "random_read"
  std::string unit;  ///< "MB/s", "IOPS" or "us"
  double sheet = 0;
  double model = 0;
  Workload workload{};
  bool booster_full = false;  ///< measured with a full write booster

  [[nodiscard]] double error() const { return model / sheet - 1; }
};

/// A device that was solved from a sheet.
struct SheetDevice {
  /// A changed parameter: what it was solved from, such as "read=4200MB/s".
  struct Change {
    std::string from;
    double base = 0;
    double value = 0;
  };
  ConfigNode config;                        ///< the base with the changed values
  std::map<std::string, Change> changes{};  ///< by parameter
  std::vector<SheetPoint> points{};
  std::vector<std::string> given{};  ///< NAME=VALUE that the user changed in the base beforehand
};

/// Changes the parameters of a `flash` model until it gives the numbers of the sheet: the rates of
/// link and channels, the controller's time per read and write, command latencies, program times
/// and, where the sheet asks for more parallel reads than the base has dies or slots for, their
/// numbers. Everything else stays as in `base`. Requests lie in 256 MiB, which the map cache holds.
/// Whatever cannot be met remains as an error of its point. Throws UserError where the base is not
/// a flash model, or where numbers of the sheet contradict each other.
[[nodiscard]] SheetDevice solve_sheet(const ConfigNode& base, const DataSheet& sheet);

/// For people: sheet, model and error of each point, and what was changed.
[[nodiscard]] std::string sheet_text(const SheetDevice& device);

/// The preset as JSON: `base`, its name or path, and the members that differ. `source`: of the
/// sheet.
[[nodiscard]] std::string sheet_json(const SheetDevice& device, const std::string& base,
                                     const std::string& title, const std::string& source);

}  // namespace kvreplay
