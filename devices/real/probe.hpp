#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "devices/real/aligned_buffer.hpp"
#include "devices/real/block_target.hpp"
#include "devices/real/host.hpp"
#include "devices/real/io_engine.hpp"

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
  [[nodiscard]] std::uint32_t largest_bytes() const;
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

/// As many requests as the depth, submitted together, again and again: whether those that were
/// submitted first are done first. In order, the first half is done when it would be alone.
struct Burst {
  std::uint64_t rounds = 0;
  double half_alone_ms = 0;  ///< until half as many, submitted alone, are done; median, as all are
  double first_half_ms = 0;  ///< until the half that was submitted first is done
  double all_ms = 0;         ///< until all are

  /// (first half - half alone) / (all - half alone): 0 in order, 1 when all end together. Nothing
  /// where the device does as many at once: then all end together in any order.
  [[nodiscard]] std::optional<double> mixing() const;
};

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
  std::optional<Burst> burst{};  ///< of random reads of the largest size at the greatest depth
};

struct ProbeResult {
  std::vector<ProbePoint> points;  ///< in the order of the grid, as far as it went
  bool interrupted = false;
  std::optional<IoFailure> failure;  ///< what ended it early

  [[nodiscard]] bool complete() const { return !interrupted && !failure; }
};

/// Measures the grid, point after point, over the whole target, and calls `on_point` with each.
/// `stop` ends it early; what was measured until then is kept, as it is when a request fails.
/// UserError before the first request when the target is too small for a size, not aligned for it,
/// or not to be written.
[[nodiscard]] ProbeResult probe(const BlockTarget& target, IoEngine& engine, const ProbeGrid& grid,
                                const std::atomic<bool>& stop,
                                const std::function<void(const ProbePoint&)>& on_point = {});

/// Random bytes to write: zeros would be a special case to some devices.
void fill_random(std::span<std::byte> memory, std::uint64_t seed);

/// A probe as a user asks for it.
struct ProbeRequest {
  ProbeGrid grid;
  std::string engine;  ///< "": the first that the system permits
  Pages pages = Pages::kOrdinary;
  double request_timeout_seconds = kRequestTimeoutSeconds;  ///< a longer request ends the probe
};

/// Takes a probe's results as they come, here or from another machine.
struct ProbeSink {
  /// Once, before the first point: target, host, engine and how it was chosen, grid.
  std::function<void(const nlohmann::ordered_json& setting)> on_setting;
  std::function<void(const nlohmann::ordered_json& point)> on_point;
};

/// How a probe ended.
struct ProbeEnd {
  std::string ended_by;  ///< "" at the end of the grid; "interrupted", or the error of a request
  std::vector<Temperature> temperatures;

  [[nodiscard]] bool interrupted() const { return ended_by == "interrupted"; }
};

/// Chooses the engine, gives it memory and measures, in a thread of its own: measure_in_thread().
/// The sink is called from this one. UserError as of probe() and choose_engine(), and when there is
/// no memory for so many requests of that size.
[[nodiscard]] ProbeEnd run_probe(const BlockTarget& target, ProbeRequest request,
                                 const std::atomic<bool>& stop, const ProbeSink& sink);

/// The result file of a probe. `program` is name and version of what asked for it. Without all of
/// its points, `complete` is false and `ended_by` says why.
[[nodiscard]] std::string probe_document(const nlohmann::ordered_json& setting,
                                         std::span<const nlohmann::ordered_json> points,
                                         const ProbeEnd& end, const std::string& program);

[[nodiscard]] nlohmann::ordered_json to_json(const ProbePoint& point);

}  // namespace kvreplay
