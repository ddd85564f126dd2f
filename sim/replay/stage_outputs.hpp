#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "policies/decide/layer_means.hpp"
#include "sim/replay/stage_graph.hpp"
#include "sim/time/time_plan.hpp"
#include "sim/time/timeline.hpp"

namespace kvreplay {

class StageStore;

/// What a stored output holds; nothing where there is none, or where it is not what `from` reads:
/// then it is computed again.
template <typename From>
auto stored_value(const std::optional<std::string>& bytes, From&& from)
    -> std::optional<decltype(from(*bytes))> {
  if (!bytes) return std::nullopt;
  try {
    return from(*bytes);
  } catch (const std::logic_error&) {
    return std::nullopt;
  }
}

/// What a replay is to give beside its rows. It makes outputs be computed that are stored.
struct OutputRequests {
  bool access_logs = false;
  bool schedule = false;
  std::int64_t timeline_steps = 0;  ///< of each of the first cells; 0 = no timelines
  std::size_t timeline_cells = 0;
};

/// What is known of the outputs of a graph: first what the store has, in the end all of the shard.
/// Logs and plans are too large to be held here: of these it says which are stored.
class StageOutputs {
 public:
  /// The graph outlives this object.
  StageOutputs(const StageGraph& graph, StageStore& store, const OutputRequests& requests);

  struct OfDecision {
    bool must_compute = false;      ///< its log is needed and is not stored
    std::vector<LayerMeans> means;  ///< empty = not known yet
  };
  struct OfPlacement {
    bool must_compute = false;  ///< its plan is needed and is not stored
  };
  struct OfTiming {
    std::optional<Timing> value;
    std::optional<Timeline> timeline;  ///< to fill while it is computed
  };
  std::vector<OfDecision> decisions;    ///< by number in the graph
  std::vector<OfPlacement> placements;  ///< likewise
  std::vector<OfTiming> timings;        ///< likewise

  /// Whether a timing of the shard that follows the plan is not known.
  [[nodiscard]] bool lacks_timings(std::size_t placement) const;
  /// Those of the shard that are not known.
  [[nodiscard]] std::vector<std::size_t> missing_timings(std::size_t placement) const;
  /// How many of the shard's first cells have a timeline.
  [[nodiscard]] std::size_t shown_cells() const { return shown_cells_; }

 private:
  [[nodiscard]] bool needs_log(std::size_t decision) const;

  const StageGraph& graph_;
  std::size_t shown_cells_ = 0;
};

}  // namespace kvreplay
