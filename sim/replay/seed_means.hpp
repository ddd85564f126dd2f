#pragma once

#include <span>
#include <string>

#include "sim/replay/replay_result.hpp"

namespace kvreplay {

/// Whether some cells differ in nothing but the seed.
[[nodiscard]] bool has_several_seeds(std::span<const CellResult> cells);

/// One row per group of cells that differ in the seed alone: what names the group, the number of
/// seeds, and for every number of results its mean and the half width of its 95 % interval
/// (Student's t over the seeds), NAME and NAME_interval.
[[nodiscard]] std::string seeds_csv(std::span<const CellResult> cells);

/// For people: "latency_ms 16.6 +- 0.2", of the main numbers.
[[nodiscard]] std::string seeds_table(std::span<const CellResult> cells);

}  // namespace kvreplay
