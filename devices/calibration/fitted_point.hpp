#pragma once

#include <span>
#include <string>

#include "base/config.hpp"
#include "devices/calibration/measure.hpp"
#include "devices/calibration/measured_points.hpp"
#include "devices/device_config.hpp"

namespace kvreplay {

/// kPredicted: mixes of reads and writes, and writes that are too few to be fitted.
enum class PointUse { kFitted, kHeldOut, kPredicted };

/// A point and the model's prediction of it.
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

/// Of the point's size, depth, range and path; reads, and the usual number of requests.
[[nodiscard]] Workload workload_of(const MeasuredPoint& measured);

/// Fills in what the model of `config` predicts for the points, of `flash` each in the device state
/// in which it was measured. `coarse`: simulates fewer requests. The results do not depend on
/// `threads`.
void run_model(const ConfigNode& config, bool coarse, std::span<FittedPoint> points, int threads);

/// The value of a numeric parameter.
[[nodiscard]] double value_of(const DeviceSpec& spec, const std::string& name);
/// Bytes programmed when every die of a flash model programs once.
[[nodiscard]] double bytes_of_all_dies(const DeviceSpec& spec);

}  // namespace kvreplay
