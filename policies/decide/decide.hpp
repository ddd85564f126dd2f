#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/decide/layer_policy.hpp"
#include "policies/decide/log/access_log.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

class Progress;

/// A recorded layer, attended to through a sliding window: its own, or a narrower one that the
/// layer is to stand for.
struct WindowedLayer {
  std::int64_t index = 0;           ///< of TraceInfo::recorded_layers
  std::int64_t sliding_window = 0;  ///< 0 = all tokens
  friend auto operator<=>(const WindowedLayer&, const WindowedLayer&) = default;
};

/// Every recorded layer as it was recorded.
[[nodiscard]] std::vector<WindowedLayer> recorded_layers(const TraceInfo& info);

struct DecideOptions {
  std::uint64_t seed = 1;
  int threads = 1;
  std::vector<WindowedLayer> layers{};  ///< to replay, in the order of the log; empty = as recorded
  std::int64_t max_steps = 0;           ///< decode steps to replay; 0 = all steps of the trace
  bool record_tokens = false;           ///< log every attended token, not only the groups
  std::string trace_hash{};             ///< of the file since it was opened; empty = computed
  Progress* progress = nullptr;         ///< advances once per layer and step
};

struct NamedDecideSpec {
  std::string name;
  DecideSpec spec;
  HeadShape model_heads{};  ///< LayerShape::model_heads
};

/// Constructs the parts that decide() would construct for a system, at every recorded layer, and
/// discards them. Throws UserError where the trace lacks what they need, or the parts do not fit
/// each other.
void check_decidable(const TraceReader& trace, const NamedDecideSpec& system);

/// Throws std::logic_error where a log breaks what docs/architecture.md promises of stage 1: events
/// that follow from those before, no token of the future, no more selected than the budget.
void check_log_invariants(const AccessLog& log, const DecideSpec& spec);

/// The turns of a conversation of which so many steps are replayed; none where it has no segments.
[[nodiscard]] std::vector<TurnSteps> turns_of(const TraceInfo& info, std::int64_t steps);

/// Stage 1: replays a trace through systems. All systems go through a layer together, so that the
/// exact attention of each step (the reference of the quality metrics) is computed once for all of
/// them. log[i] depends only on the trace, systems[i] and the seed: not on the other systems, and
/// not on the number of threads.
[[nodiscard]] std::vector<AccessLog> decide(const TraceReader& trace,
                                            std::span<const NamedDecideSpec> systems,
                                            const DecideOptions& options);

}  // namespace kvreplay
