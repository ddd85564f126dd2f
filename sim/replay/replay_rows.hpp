#pragma once

#include <cstddef>
#include <span>

#include "sim/replay/experiment.hpp"
#include "sim/replay/replay_result.hpp"
#include "sim/replay/replay_trace.hpp"
#include "sim/replay/stage_graph.hpp"
#include "sim/replay/stage_outputs.hpp"

namespace kvreplay {

/// The rows of a replay, from its experiment and its outputs.
class ReplayRows {
 public:
  /// All arguments must outlive this object.
  ReplayRows(const Experiment& experiment, std::span<const ReplayTrace> traces,
             const StageGraph& graph, const StageOutputs& outputs);

  /// The row of a cell whose timing and means are known.
  [[nodiscard]] CellResult cell(std::size_t number) const;
  /// The result, once the outputs of the whole shard are known.
  [[nodiscard]] ReplayResult all() const;

 private:
  const Experiment& experiment_;
  std::span<const ReplayTrace> traces_;
  const StageGraph& graph_;
  const StageOutputs& outputs_;
};

}  // namespace kvreplay
