#include "devices/real/latency_summary.hpp"

#include <nlohmann/json.hpp>

#include "base/statistics.hpp"

namespace kvreplay {

LatencySummary summarise(std::vector<std::int64_t> latencies_ns) {
  LatencySummary summary;
  summary.requests = latencies_ns.size();
  if (latencies_ns.empty()) return summary;
  const auto count = static_cast<double>(latencies_ns.size());
  double sum = 0;
  for (const std::int64_t latency : latencies_ns) sum += static_cast<double>(latency);
  AscendingPercentiles percentile(latencies_ns);
  const auto percentile_us = [&](double share) {
    return static_cast<double>(percentile(share)) * 1e-3;
  };
  summary.mean_us = sum / count * 1e-3;
  summary.p50_us = percentile_us(0.5);
  summary.p90_us = percentile_us(0.9);
  summary.p95_us = percentile_us(0.95);
  summary.p99_us = percentile_us(0.99);
  summary.p999_us = percentile_us(0.999);
  summary.max_us = percentile_us(1);
  return summary;
}

nlohmann::ordered_json latency_json(const LatencySummary& latency) {
  return {{"requests", latency.requests}, {"mean_us", latency.mean_us}, {"p50_us", latency.p50_us},
          {"p90_us", latency.p90_us},     {"p95_us", latency.p95_us},   {"p99_us", latency.p99_us},
          {"p999_us", latency.p999_us},   {"max_us", latency.max_us}};
}

}  // namespace kvreplay
