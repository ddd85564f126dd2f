#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "devices/real/block_target.hpp"
#include "devices/real/host.hpp"
#include "devices/real/io_engine.hpp"
#include "sim/base/progress.hpp"

namespace kvreplay {

enum class Pattern { kRandom, kSequential };
[[nodiscard]] std::string to_text(Pattern pattern);

/// What to measure: every pattern with every write share, size and depth.
struct ProbeGrid {
  std::vector<Pattern> patterns{Pattern::kRandom};
  std::vector<double> write_shares{0};  ///< of the requests, 0 to 1
  std::vector<std::uint32_t> sizes_bytes;
  std::vector<std::uint32_t> depths;
  double seconds = 1;  ///< a point; longer where the device is too slow for a few requests
  std::uint64_t seed = 0;

  [[nodiscard]] std::size_t points() const {
    return patterns.size() * write_shares.size() * sizes_bytes.size() * depths.size();
  }
  [[nodiscard]] bool writes() const;
  [[nodiscard]] std::uint32_t greatest_depth() const;
  /// Memory that an engine needs for it: one request for each outstanding one.
  [[nodiscard]] std::size_t memory_bytes() const;
};

/// Latency from submission to completion. Percentile p: the smallest that at least p % of the
/// requests do not exceed.
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

/// One point of the grid. Measured are the requests after the first `depth`, which fill the queue,
/// and before the last `depth`, while which it drains.
struct ProbePoint {
  Pattern pattern = Pattern::kRandom;
  double write_share = 0;
  std::uint32_t bytes = 0;
  std::uint32_t depth = 0;

  double seconds = 0;  ///< in which the measured requests completed
  double iops = 0;
  double mb_s = 0;  ///< MB = 10^6 bytes
  LatencySummary latency{};
  std::optional<LatencySummary> read_latency{};  ///< of a mix
  std::optional<LatencySummary> write_latency{};
};

struct ProbeResult {
  std::vector<ProbePoint> points;  ///< in the order of the grid, as far as it went
  bool interrupted = false;
  std::optional<IoFailure> failure;  ///< what ended it early
  std::vector<Temperature> temperatures_before;
  std::vector<Temperature> temperatures_after;

  [[nodiscard]] bool partial() const { return interrupted || failure; }
};

/// Measures the grid, point after point, over the whole target. `stop` ends it early; what was
/// measured until then is kept, as it is when a request fails. UserError before the first request
/// when the target is too small for a size, not aligned for it, or not to be written.
[[nodiscard]] ProbeResult probe(const BlockTarget& target, IoEngine& engine, const ProbeGrid& grid,
                                const std::atomic<bool>& stop, Progress& progress);

/// Random bytes to write: zeros would be a special case to some devices.
void fill_random(std::span<std::byte> memory, std::uint64_t seed);

/// The result as JSON, with the target, the host, the engine and how it was chosen.
/// `program` is name and version of what measured.
[[nodiscard]] std::string probe_json(const ProbeResult& result, const ProbeGrid& grid,
                                     const BlockTarget& target, const EngineChoice& choice,
                                     const std::string& engine_notes, const std::string& program);

}  // namespace kvreplay
