#pragma once

#include <span>
#include <string>

#include "base/config.hpp"
#include "devices/calibration/measured_points.hpp"
#include "devices/device_config.hpp"

namespace kvreplay {

/// Predicted are mixes of reads and writes, and writes that are too few to be fitted.
enum class PointUse { kFitted, kHeldOut, kPredicted };

/// A point and what a model makes of it.
struct FittedPoint {
  MeasuredPoint measured;
  PointUse use = PointUse::kPredicted;
  double iops = 0;
  double mean_us = 0;
  double read_us = 0;   ///< 0 without reads
  double write_us = 0;  ///< 0 without writes

  [[nodiscard]] double iops_error() const { return iops / measured.iops - 1; }
  [[nodiscard]] double latency_error() const { return mean_us / measured.mean_us - 1; }
};

/// Fills in what the flash model of `config` makes of the points, each in the state in which it was
/// measured. `coarse`: by fewer requests. The results do not depend on `threads`.
void run_model(const ConfigNode& config, bool coarse, std::span<FittedPoint> points, int threads);

/// A parameter that is a number.
[[nodiscard]] double value_of(const DeviceSpec& spec, const std::string& name);
/// What is programmed when every die of a flash model programs once.
[[nodiscard]] double bytes_of_all_dies(const DeviceSpec& spec);

}  // namespace kvreplay
