#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/progress.hpp"
#include "devices/calibration/fitted_point.hpp"
#include "devices/calibration/measured_points.hpp"

namespace kvreplay {

struct CalibrateOptions {
  static constexpr std::int64_t kProgressUnits = 100;

  /// Every k-th point of the reads, and of the writes, is held out of the fit, counted along the
  /// diagonals of the size x depth grid, so that no size or depth is lost. 0: none.
  std::uint64_t hold_out_every = 5;
  Place points = {};              ///< where they stand, for errors
  std::uint64_t block_bytes = 0;  ///< that requests to the measured device align with; 0: not told
  /// Of a burst: below one third, pages are served in the order of arrival, above two thirds at
  /// random; between, it is not told.
  std::optional<double> mixing = {};
  int threads = 1;               ///< the result does not depend on it
  Progress* progress = nullptr;  ///< of kProgressUnits
};

struct Calibration {
  ConfigNode config;                             ///< the base with the fitted values
  std::map<std::string, double> fitted = {};     ///< parameter -> value
  std::map<std::string, double> untold = {};     ///< those that the points do not tell: the base's
  std::map<std::string, std::string> told = {};  ///< what a burst tells: parameter -> value
  std::set<std::string> decided_by_writes = {};  ///< of both
  std::vector<FittedPoint> points = {};          ///< in the order of the measured ones
  std::uint64_t evaluations = 0;                 ///< models tried
};

/// Fits the `flash` model to random requests. Reads decide latency, overhead and sensing time of a
/// command, rates of channels and link, channels and dies; with these held, writes decide latency
/// and overhead of a write, write buffer and program time (that of the write booster where the base
/// has one, too). A burst decides the order of service. Everything else is the base's. A
/// deterministic descent from several starts on the log errors (Cauchy's loss) of IOPS and mean
/// latency; a parameter that no point depends on stays the base's. UserError when the base is no
/// flash model or cannot have the measured device's blocks, or too few points are left to fit.
[[nodiscard]] Calibration calibrate(const ConfigNode& base, std::span<const MeasuredPoint> points,
                                    const CalibrateOptions& options);

/// The preset as JSON: fitted values with "calibrated from the random writes of MEASUREMENT" as
/// `source`, the others with the base's, marked as such.
[[nodiscard]] std::string preset_json(const Calibration& calibration, const ConfigNode& base,
                                      const std::string& name, const std::string& title,
                                      const std::string& notes, const std::string& measurement);

}  // namespace kvreplay
