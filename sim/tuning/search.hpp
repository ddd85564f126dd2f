// By hand: what can vary depends on the parts chosen; pagmo and the like search vectors of numbers.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "sim/tuning/pareto.hpp"
#include "sim/tuning/search_space.hpp"

namespace kvreplay {

struct SearchOptions {
  std::int64_t evaluations = 200;  ///< beside those of the starts
  std::int64_t population = 24;    ///< parents kept, and children made, a generation
  std::uint64_t seed = 1;
};

/// A composition that was evaluated.
struct Evaluated {
  Composition composition;
  std::int64_t generation = 0;  ///< 0 = one of the starts
  Score score;
};

/// Scores in the order of the compositions; none where a stage refuses one.
using EvaluateAll = std::function<std::vector<std::optional<Score>>(std::span<const Composition>)>;

/// NSGA-II (Deb et al., 2002): of parents and children together, those of the best fronts become
/// the next parents, the loneliest first where a front does not fit whole. Children come of two
/// tournaments of two, half of them by crossing, all by mutation; what is refused or known is drawn
/// again. Returns all that was evaluated, in order. Depends on nothing but its arguments.
[[nodiscard]] std::vector<Evaluated> search(const SearchSpace& space,
                                            std::span<const Composition> starts,
                                            const SearchOptions& options,
                                            const EvaluateAll& evaluate);

}  // namespace kvreplay
