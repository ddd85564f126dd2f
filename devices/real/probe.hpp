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
#include "devices/real/latency_summary.hpp"

namespace kvreplay {

enum class Pattern { kRandom, kSequential };
[[nodiscard]] std::string to_text(Pattern pattern);

/// What to measure: every pattern with every write share, size and depth.
struct ProbeGrid {
  std::vector<Pattern> patterns{Pattern::kRandom};
  std::vector<double> write_shares{0};  ///< shares of writes among the requests, 0 to 1
  std::vector<std::uint32_t> sizes_bytes;
  std::vector<std::uint32_t> depths;
  double seconds = 1;  ///< per point; longer where the device completes too few requests
  std::uint64_t seed = 0;
  /// How often the grid is gone through, each point taking its share of `seconds` each time. All
  /// rounds but the last are in random order, so that what changes while they are measured tells on
  /// no part of the grid alone.
  std::uint32_t rounds = 1;
  /// Memory for the requests, at least. They use in turn what is more than the outstanding ones'.
  std::size_t min_memory_bytes = 0;

  [[nodiscard]] std::size_t points() const {
    return patterns.size() * write_shares.size() * sizes_bytes.size() * depths.size();
  }
  [[nodiscard]] bool writes() const;
  [[nodiscard]] std::uint32_t max_depth() const;
  [[nodiscard]] std::uint32_t max_bytes() const;
  /// Memory that an engine needs for the grid: one buffer per outstanding request, or more.
  [[nodiscard]] std::size_t memory_bytes() const;
};

/// As many requests as the depth, submitted together, again and again: measures whether the
/// requests submitted first are done first. With in-order service, the first half takes as long as
/// it would alone.
struct Burst {
  std::uint64_t rounds = 0;
  double half_alone_ms = 0;  ///< until half as many, submitted alone, are done; medians, all three
  double first_half_ms = 0;  ///< until the half that was submitted first is done
  double all_ms = 0;         ///< until all are

  /// (first half - half alone) / (all - half alone): 0 in order, 1 when all end together. Nothing
  /// where the device serves that many at once: then all end together in any order.
  [[nodiscard]] std::optional<double> mixing() const;
};

/// One point of the grid. The measured requests come after the first `depth`, which fill the queue,
/// and before the last `depth`, during which it drains.
struct ProbePoint {
  Pattern pattern = Pattern::kRandom;
  double write_share = 0;
  std::uint32_t bytes = 0;
  std::uint32_t depth = 0;

  double seconds = 0;  ///< time in which the measured requests completed
  double iops = 0;
  double mb_s = 0;  ///< MB = 10^6 bytes
  /// Of each round, where there are several; `iops` and the latencies are those of all requests.
  std::vector<double> round_iops{};
  LatencySummary latency{};
  std::optional<LatencySummary> read_latency{};  ///< of a mix
  std::optional<LatencySummary> write_latency{};
  std::optional<Burst> burst{};  ///< for random reads of the largest size at the greatest depth
};

struct ProbeResult {
  std::vector<ProbePoint> points;  ///< in the order of the grid, as far as the probe went
  bool interrupted = false;
  std::optional<IoFailure> failure;  ///< what ended it early

  [[nodiscard]] bool complete() const { return !interrupted && !failure; }
};

/// Measures the grid over the whole target, and calls `on_point` with each point, in the order of
/// the grid, when its last round is done. `stop` ends the probe early; results so far are kept,
/// also when a request fails. Throws UserError before the first request when the target is too
/// small or not aligned for a size, or not writable.
[[nodiscard]] ProbeResult probe(const BlockTarget& target, IoEngine& engine, const ProbeGrid& grid,
                                const std::atomic<bool>& stop,
                                const std::function<void(const ProbePoint&)>& on_point = {});

/// Random bytes to write, because zeros are a special case to some devices.
void fill_random(std::span<std::byte> memory, std::uint64_t seed);

/// A probe as the user requests it.
struct ProbeRequest {
  ProbeGrid grid;
  std::string engine;  ///< "": the first one that the system permits
  Pages pages = Pages::kOrdinary;
  double request_timeout_seconds = kRequestTimeoutSeconds;  ///< a longer request ends the probe
};

/// Receives a probe's results as they arrive, from this machine or another.
struct ProbeSink {
  /// Called once, before the first point: target, host, engine and how it was chosen, grid.
  std::function<void(const nlohmann::ordered_json& setting)> on_setting;
  std::function<void(const nlohmann::ordered_json& point)> on_point;
};

/// How a probe ended.
struct ProbeEnd {
  std::string ended_by;  ///< "" after the whole grid; "interrupted", or the error of a request
  std::vector<Temperature> temperatures;

  [[nodiscard]] bool interrupted() const { return ended_by == "interrupted"; }
};

/// Chooses the engine, allocates its memory and measures, in a separate thread
/// (measure_in_thread()). The sink is called from the calling thread. Throws UserError like probe()
/// and choose_engine(), and when memory for so many requests of that size is not available.
[[nodiscard]] ProbeEnd run_probe(const BlockTarget& target, ProbeRequest request,
                                 const std::atomic<bool>& stop, const ProbeSink& sink);

/// The result file of a probe. `program` is the name and version of the calling program. If points
/// are missing, `complete` is false and `ended_by` says why.
[[nodiscard]] std::string probe_document(const nlohmann::ordered_json& setting,
                                         std::span<const nlohmann::ordered_json> points,
                                         const ProbeEnd& end, const std::string& program);

[[nodiscard]] nlohmann::ordered_json to_json(const ProbePoint& point);

}  // namespace kvreplay
