// By hand: what can vary depends on the chosen parts, whereas pagmo and the like search vectors of
// numbers.

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
  std::int64_t evaluations = 200;  ///< in addition to the starts
  std::int64_t population = 24;    ///< parents kept and children made per generation
  std::uint64_t seed = 1;
};

/// An evaluated composition.
struct Evaluated {
  Composition composition;
  std::int64_t generation = 0;  ///< 0 = one of the starts
  Score score;
};

/// Scores in the order of the compositions; none for one that a stage refuses.
using EvaluateAll = std::function<std::vector<std::optional<Score>>(std::span<const Composition>)>;

/// NSGA-II (Deb et al., 2002). Of parents and children together, those of the best fronts become
/// the next parents; where a front does not fit whole, the least crowded go first. The parents of a
/// child are chosen by tournaments of two. Half of the children are crossed, and all are mutated. A
/// child that is refused or already known is drawn again. Returns everything that was evaluated, in
/// order. The result depends only on the arguments.
[[nodiscard]] std::vector<Evaluated> search(const SearchSpace& space,
                                            std::span<const Composition> starts,
                                            const SearchOptions& options,
                                            const EvaluateAll& evaluate);

}  // namespace kvreplay
