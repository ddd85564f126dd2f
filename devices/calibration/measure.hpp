#pragma once

#include <cstdint>

#include "devices/device.hpp"
#include "devices/device_config.hpp"

namespace kvreplay {

/// A closed loop of requests: `depth` are always outstanding, as fio's jobs do.
struct Workload {
  std::uint64_t bytes = 4096;  ///< a request; offsets are multiples of it
  std::uint32_t depth = 1;     ///< outstanding requests
  std::uint64_t requests = 10'000;
  double write_share = 0;                   ///< of the requests, 0 to 1
  std::uint64_t range_bytes = 64ull << 30;  ///< offsets lie below
  std::uint64_t seed = 0;
  bool sequential = false;         ///< one after the other from 0, and again; else at random
  bool write_buffer_full = false;  ///< at the beginning, as long and fast writes leave it
  double path_us = 0;  ///< that a request spends on its way to the device, beside all others
};

/// Latency is from submission (the way to the device and the wait in the host included) to the last
/// byte of the request.
/// Percentile p: the smallest latency that at least p % of the requests do not exceed.
struct Measurement {
  std::uint64_t requests = 0;  ///< measured: those after the first `depth`, which fill the pipeline
  double seconds = 0;          ///< virtual time in which they completed
  double iops = 0;             ///< requests / seconds
  double mb_s = 0;  ///< requested bytes / seconds / 10^6, whatever the device had to read
  double mean_us = 0;
  double read_mean_us = 0;   ///< 0 without reads
  double write_mean_us = 0;  ///< 0 without writes
  double p50_us = 0;
  double p90_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  double max_us = 0;

  DeviceCounters counters;   ///< of the whole run
  double run_seconds = 0;    ///< virtual time of the whole run, to the last event
  std::uint64_t events = 0;  ///< of the whole run
};

/// Runs the workload on a new device of this kind, whose map cache is as in a long run. A request
/// that exceeds max_transfer_bytes, or does not align with logical blocks, becomes the commands
/// that a host would send. UserError when the workload makes no sense: no bytes or depth, fewer
/// requests than the depth, or a range smaller than a request.
[[nodiscard]] Measurement measure(const DeviceSpec& spec, const Workload& workload);

}  // namespace kvreplay
