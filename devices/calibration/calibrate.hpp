#pragma once

#include <cmath>
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

/// Which model is fitted; kBest: whichever has the smaller error of IOPS at the points that were
/// not fitted (of all points where all were): the root mean square of the logarithms, in which
/// reads count twice. Where most reads show a bucket of tokens, `waves`, which can have one.
enum class FittedPart { kFlash, kWaves, kBest };

struct CalibrateOptions {
  static constexpr std::int64_t kProgressUnits = 100;

  /// Every k-th point of the reads, and of the writes, is held out of the fit, counted along the
  /// diagonals of the size x depth grid, so that no size or depth is lost. 0: none.
  std::uint64_t hold_out_every = 5;
  SourceLocation points = {};     ///< where the points come from, for errors
  std::uint64_t block_bytes = 0;  ///< block size of the measured device; 0: unknown
  /// From a burst: below 1/3, pages are served in the order of arrival; above 2/3, at random;
  /// between them, the order is undetermined.
  std::optional<double> mixing = {};
  FittedPart part = FittedPart::kFlash;
  int threads = 1;               ///< the result does not depend on it
  Progress* progress = nullptr;  ///< of kProgressUnits

  /// Whether the burst tells the order of service.
  [[nodiscard]] bool mixing_decides() const { return mixing && std::abs(*mixing - 0.5) > 1.0 / 6; }
};

struct Calibration {
  ConfigNode config;                                ///< the base with the fitted values
  std::map<std::string, double> fitted = {};        ///< parameter -> value
  std::map<std::string, double> undetermined = {};  ///< not determined by the points: the base's
  std::map<std::string, std::string> from_burst =
      {};                                        ///< determined by a burst: parameter -> value
  std::set<std::string> decided_by_writes = {};  ///< of `fitted` and `undetermined`
  std::vector<FittedPoint> points = {};          ///< in the order of the measured ones
  std::uint64_t evaluations = 0;                 ///< models tried
  std::string compared = {};  ///< errors of the models among which one was chosen; "" for one

  /// Whether the writes are those in sequence.
  [[nodiscard]] bool sequential_writes() const;
};

/// Fits the `flash` model to random requests. Reads determine the latency, overhead and sensing
/// time of a command, the rates of channels and link, and the numbers of channels and dies. With
/// these held fixed, writes determine the latency and overhead of a write, the write buffer and the
/// program time (also that of the write booster where the base has one). A burst determines the
/// order of service. Everything else keeps the base's value. The fit is a deterministic descent
/// from several starts on the log errors (Cauchy's loss) of IOPS and mean latency; a parameter that
/// no point depends on keeps the base's value. Throws UserError when the base is not a flash model,
/// when it cannot have the measured device's blocks, or when too few points are left to fit.
[[nodiscard]] Calibration calibrate(const ConfigNode& base, std::span<const MeasuredPoint> points,
                                    const CalibrateOptions& options);

/// Fits the `waves` model to the same points: reads and, where there are enough, writes. A limit
/// on a rate, and a ring, is taken where it takes enough off the loss. Where a point shows a bucket
/// of tokens, its median takes the place of its mean, as the latency without limits.
[[nodiscard]] Calibration calibrate_waves(const ConfigNode& base,
                                          std::span<const FittedPoint> points,
                                          const CalibrateOptions& options);

/// The preset as JSON. Fitted values have "calibrated from the random writes of MEASUREMENT" as
/// `source`; the others keep the base's source, marked as such.
/// Where writes in sequence were fitted, it says so.
[[nodiscard]] std::string preset_json(const Calibration& calibration, const ConfigNode& base,
                                      const std::string& name, const std::string& title,
                                      const std::string& notes, const std::string& measurement);

}  // namespace kvreplay
