#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/replay/experiment.hpp"
#include "sim/replay/replay_result.hpp"
#include "sim/replay/system.hpp"

namespace kvreplay {

/// What makes a cell's numbers those of another case than the one that was asked for, in words of
/// one kind each (docs/metrics.md, `marks`): "gc_wraps exceeds_dram". "" where there is nothing.
/// `row` needs its timing, quality and the platform's DRAM; `tokens`: of the sequence,
/// mean over the decode steps; `layers`: those that were replayed.
[[nodiscard]] std::string marks_of(const SystemSpec& system, const CellResult& row, double tokens,
                                   std::span<const LayerMeans> layers);

/// A line per mark and system for the user, without "kvreplay: warning: ".
[[nodiscard]] std::vector<std::string> mark_lines(const Experiment& experiment,
                                                  const ReplayResult& result);

}  // namespace kvreplay
