#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "sim/replay/experiment.hpp"
#include "sim/replay/shard.hpp"
#include "sim/time/time_plan.hpp"

namespace kvreplay {

/// What the graph needs to know of a trace.
struct TraceIdentity {
  std::string sha256;
  std::int64_t decode_steps = 0;
};

/// Outputs of stage 1 that can be decided in lockstep share trace, seed and steps.
using LockstepGroup = std::tuple<std::size_t, std::uint64_t, std::int64_t>;

/// An output of stage 1: an access log. Systems that differ only in later stages share it.
struct DecisionNode {
  std::size_t trace = 0;   ///< number in the experiment
  std::size_t system = 0;  ///< one of those that share it
  std::uint64_t seed = 1;
  std::int64_t steps = 0;
  std::string key;
  std::set<std::string> systems;  ///< names of those that share it
  std::vector<std::size_t> placements;
  bool in_shard = false;

  [[nodiscard]] LockstepGroup group() const { return {trace, seed, steps}; }
};

/// An output of stage 2: an I/O plan.
struct PlacementNode {
  std::size_t decision = 0;
  std::size_t system = 0;  ///< one of those that share it
  std::size_t model = 0;   ///< likewise; their shapes are equal
  std::string key;
  std::vector<std::size_t> timings;
  bool in_shard = false;
};

/// An output of stage 3: a timing.
struct TimingNode {
  std::size_t placement = 0;
  std::size_t cell = 0;  ///< one of those that share it
  TimeOptions options;   ///< without a receiver of schedules or timelines
  std::string key;
  std::vector<std::size_t> cells;
  bool in_shard = false;
};

/// Which output depends on which. It holds every distinct output that the cells of an experiment
/// need, once. Outputs are equal when their keys are (stage_keys.hpp). The graph does not record
/// what has been computed.
class StageGraph {
 public:
  /// `traces`: by trace of the experiment. The outputs that the cells of `shard` need are in_shard.
  StageGraph(const Experiment& experiment, std::span<const TraceIdentity> traces,
             bool record_tokens, const Shard& shard);

  [[nodiscard]] const std::vector<DecisionNode>& decisions() const { return decisions_; }
  [[nodiscard]] const std::vector<PlacementNode>& placements() const { return placements_; }
  [[nodiscard]] const std::vector<TimingNode>& timings() const { return timings_; }

  /// The cells of the shard, ascending.
  [[nodiscard]] const std::vector<std::size_t>& cells() const { return cells_; }
  [[nodiscard]] bool in_shard(std::size_t cell) const;

  // For any cell of the experiment, the number of the output that it needs.
  [[nodiscard]] std::size_t timing_of(std::size_t cell) const { return timing_of_[cell]; }
  [[nodiscard]] std::size_t placement_of(std::size_t cell) const {
    return timings_[timing_of_[cell]].placement;
  }
  [[nodiscard]] std::size_t decision_of(std::size_t cell) const {
    return placements_[placement_of(cell)].decision;
  }

 private:
  void list_outputs(const Experiment& experiment, std::span<const TraceIdentity> traces,
                    bool record_tokens);
  void choose_cells(const Shard& shard);

  std::vector<DecisionNode> decisions_;
  std::vector<PlacementNode> placements_;
  std::vector<TimingNode> timings_;
  std::vector<std::size_t> timing_of_;  ///< by cell of the experiment
  std::vector<std::size_t> cells_;
};

}  // namespace kvreplay
