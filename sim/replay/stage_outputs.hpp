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

/// What a replay must give in addition to its rows, which makes it compute stored outputs again.
struct OutputRequests {
  bool access_logs = false;
  bool schedule = false;
  std::int64_t timeline_steps = 0;  ///< per timeline; 0 = no timelines
  std::size_t timeline_cells = 0;
};

/// The known outputs of a graph: at first those in the store, at the end those of the whole shard.
/// Logs and plans are too large to hold here: for them it only says which are stored.
class StageOutputs {
 public:
  /// The graph must outlive this object.
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
    std::optional<Timeline> timeline;  ///< to be filled while the timing is computed
  };
  std::vector<OfDecision> decisions;    ///< by number in the graph
  std::vector<OfPlacement> placements;  ///< likewise
  std::vector<OfTiming> timings;        ///< likewise

  /// Whether some timing of the shard that follows the plan is still unknown.
  [[nodiscard]] bool lacks_timings(std::size_t placement) const;
  /// The unknown timings of the shard that follow the plan.
  [[nodiscard]] std::vector<std::size_t> missing_timings(std::size_t placement) const;
  /// How many of the shard's first cells have a timeline.
  [[nodiscard]] std::size_t shown_cells() const { return shown_cells_; }

 private:
  [[nodiscard]] bool needs_log(std::size_t decision) const;

  const StageGraph& graph_;
  std::size_t shown_cells_ = 0;
};

}  // namespace kvreplay
