#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace kvreplay {

/// Latency from submission to completion. Percentile p is the smallest latency that at least p % of
/// the requests do not exceed.
struct LatencySummary {
  std::uint64_t requests = 0;
  double mean_us = 0;
  double p50_us = 0;
  double p90_us = 0;
  double p95_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  double max_us = 0;
};
[[nodiscard]] LatencySummary summarise(std::vector<std::int64_t> latencies_ns);
/// The members by their names, as result files have them.
[[nodiscard]] nlohmann::ordered_json latency_json(const LatencySummary& latency);

}  // namespace kvreplay
