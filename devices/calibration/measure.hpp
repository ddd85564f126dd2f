#pragma once

#include <cstdint>

#include "devices/device.hpp"
#include "devices/device_config.hpp"

namespace kvreplay {

/// A closed loop of requests: `depth` are always outstanding, as fio's jobs do.
struct Workload {
  std::uint64_t bytes = 4096;  ///< per request; offsets are multiples of it
  std::uint32_t depth = 1;     ///< outstanding requests
  std::uint64_t requests = 10'000;
  double write_share = 0;                   ///< share of the requests, 0 to 1
  std::uint64_t range_bytes = 64ull << 30;  ///< offsets lie below this
  std::uint64_t seed = 0;
  bool sequential = false;         ///< in order from 0, repeatedly; otherwise at random
  bool write_buffer_full = false;  ///< at the start, as after long, fast writing
  bool burst_used_up = false;      ///< at the start, as after long use at the limits of a rate
  double path_us = 0;  ///< time of each request on its way to the device, independent of the others
};

/// Latency runs from submission (including the way to the device and the wait in the host) to the
/// last byte of the request. Percentile p is the smallest latency that at least p % of the requests
/// do not exceed.
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
/// that exceeds max_transfer_bytes, or is not aligned to logical blocks, becomes the commands that
/// a host would send. Throws UserError for an invalid workload: no bytes or depth, fewer requests
/// than the depth, or a range smaller than a request.
[[nodiscard]] Measurement measure(const DeviceSpec& spec, const Workload& workload);

}  // namespace kvreplay
