#include "devices/calibration/fitted_point.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/parallel.hpp"

namespace kvreplay {
namespace {

/// Of a device whose rates do not depend on what was written before. The points of a measurement
/// follow each other without a rest.
void run_without_state(const DeviceSpec& spec, FittedPoint& point) {
  Workload workload = workload_of(point.measured);
  workload.write_share = point.measured.write_share;
  workload.requests = std::max<std::uint64_t>(600, 8 * std::uint64_t{point.measured.depth});
  workload.burst_used_up = true;
  const Measurement found = measure(spec, workload);
  point.iops = found.iops;
  point.mean_us = found.mean_us;
  point.read_us = found.read_mean_us;
  point.write_us = found.write_mean_us;
}

/// A flash model that predicts measured points.
class Model {
 public:
  /// `coarse`: simulates fewer requests.
  Model(const ConfigNode& config, bool coarse)
      : spec_(DeviceSpec::parse(config)),
        booster_bytes_(value_of(spec_, "booster_bytes")),
        boosted_(with_booster(config, booster_bytes_ > 0 ? "1000000000000" : "0")),
        unboosted_(with_booster(config, "0")),
        coarse_(coarse) {}

  void run(FittedPoint& point) const {
    const MeasuredPoint& measured = point.measured;
    // All models get the same random offsets, so that only their parameters make them differ.
    constexpr std::uint64_t kLarge = 128 << 10;
    Workload workload = workload_of(measured);
    workload.requests = std::max<std::uint64_t>(measured.bytes > kLarge ? 250 : 600,
                                                8 * std::uint64_t{measured.depth});
    if (coarse_) workload.requests /= 3;
    if (measured.write_share > 0) {
      run_writes(point, workload);
      return;
    }
    const Measurement result = measure(spec_, workload);
    point.iops = result.iops;
    point.mean_us = point.read_us = result.mean_us;
  }

 private:
  static DeviceSpec with_booster(const ConfigNode& config, const char* bytes) {
    return DeviceSpec::parse(config.with("booster_bytes", bytes));
  }

  /// Predicts the mean over as many requests as were measured, but simulates only a few of them.
  /// Writes are fast until the buffer is full, then as fast as dies program, which is faster while
  /// the booster has room.
  void run_writes(FittedPoint& point, Workload workload) const {
    constexpr std::uint64_t kMaxRequests = 20'000;
    const MeasuredPoint& measured = point.measured;
    const auto count = static_cast<double>(measured.requests);
    const double written = measured.write_share * static_cast<double>(measured.bytes);
    const double buffer = value_of(spec_, "write_buffer_bytes");
    const double round = bytes_of_all_dies(spec_);
    workload.write_share = measured.write_share;

    double unboosted_share = 0;
    if (booster_bytes_ > 0) {
      unboosted_share = std::max(0.0, 1 - (booster_bytes_ + buffer) / (written * count));
    }
    double seconds_a_request = 0;
    const auto add = [&](double share, const Measurement& phase) {
      seconds_a_request += share / phase.iops;
      point.mean_us += share * phase.mean_us;
      point.read_us += share * phase.read_mean_us;
      point.write_us += share * phase.write_mean_us;
    };
    if (measured.write_share < 1) {
      // The fill level of the buffer depends on how reads and programs disturb each other, which
      // takes time.
      workload.requests =
          std::max<std::uint64_t>(workload.depth, std::min(measured.requests, kMaxRequests));
      add(1 - unboosted_share, measure(boosted_, workload));
    } else {
      // Buffer room is freed in bursts, when dies end their programs: average over many of them.
      const auto rounds = static_cast<std::uint64_t>((coarse_ ? 4 : 12) * round / written);
      workload.requests = std::max(workload.requests, std::min(rounds, kMaxRequests));
      Workload beginning = workload;
      beginning.requests =
          std::max<std::uint64_t>(workload.depth, std::min(measured.requests, workload.requests));
      const Measurement buffered = measure(boosted_, beginning);
      workload.write_buffer_full = true;
      const Measurement drained = measure(boosted_, workload);
      double buffered_share = 1 - unboosted_share;
      if (buffered.iops > drained.iops) {
        // The buffer takes what is not drained meanwhile; data being programmed still occupies its
        // room.
        const double kept = written * (1 - drained.iops / buffered.iops);
        buffered_share = std::min(buffered_share, std::max(0.0, buffer - round) / kept / count);
      }
      add(buffered_share, buffered);
      add(1 - unboosted_share - buffered_share, drained);
    }
    if (unboosted_share > 0) add(unboosted_share, measure(unboosted_, workload));
    point.iops = 1 / seconds_a_request;
  }

  const DeviceSpec spec_;
  const double booster_bytes_;
  const DeviceSpec boosted_;    ///< with unlimited room, where there is a booster
  const DeviceSpec unboosted_;  ///< as with a full booster
  const bool coarse_;
};

}  // namespace

Workload workload_of(const MeasuredPoint& measured) {
  Workload workload{
      .bytes = measured.bytes, .depth = measured.depth, .sequential = measured.sequential};
  workload.path_us = measured.path_us;
  if (measured.range_bytes >= measured.bytes) workload.range_bytes = measured.range_bytes;
  return workload;
}

void run_model(const ConfigNode& config, bool coarse, std::span<FittedPoint> points, int threads) {
  const DeviceSpec spec = DeviceSpec::parse(config);
  std::optional<Model> flash;
  if (spec.device.name() == "flash") flash.emplace(config, coarse);
  parallel_for(std::ssize(points), threads, [&](std::int64_t index) {
    FittedPoint& point = points[static_cast<std::size_t>(index)];
    if (flash) {
      flash->run(point);
    } else {
      run_without_state(spec, point);
    }
  });
}

double value_of(const DeviceSpec& spec, const std::string& name) {
  const Value& value = spec.device.arguments().all().at(name).value;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    return static_cast<double>(*integer);
  }
  return std::get<double>(value);
}

double bytes_of_all_dies(const DeviceSpec& spec) {
  double bytes = 1;
  for (const char* name :
       {"channels", "dies_per_channel", "planes", "program_pages", "page_bytes"}) {
    bytes *= value_of(spec, name);
  }
  return bytes;
}

}  // namespace kvreplay
