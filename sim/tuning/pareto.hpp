#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace kvreplay {

/// What a search minimises: quality lost, latency and DRAM, each in a unit of its own.
inline constexpr std::size_t kObjectives = 3;
using Objectives = std::array<double, kObjectives>;

/// Whether `a` is at most `b` in every objective and below it in at least one.
[[nodiscard]] bool dominates(const Objectives& a, const Objectives& b);

struct Score {
  Objectives objectives{};
  double violation = 0;  ///< excess over the constraints, as shares of their limits; 0 = met

  [[nodiscard]] bool feasible() const { return violation == 0; }
};

/// Constrained domination (Deb et al., NSGA-II, IEEE Trans. Evol. Comput. 6(2), 2002, section VI).
/// A score that meets the constraints is better than one that does not. Of two that do not, the one
/// with the smaller violation is better; of two that do, the dominating one.
[[nodiscard]] bool better(const Score& a, const Score& b);

/// Non-dominated sorting (ibid., III-A) by better(): 0 for the front, 1 for the front of the rest,
/// and so on.
[[nodiscard]] std::vector<std::size_t> front_ranks(std::span<const Score> scores);

/// Crowding distances within one front (ibid., III-B): large where neighbours are far, infinite at
/// the ends of an objective.
[[nodiscard]] std::vector<double> crowding_distances(std::span<const Objectives> front);

/// The volume of the points that some member of `points` dominates and that lie below `reference`.
[[nodiscard]] double hypervolume(std::span<const Objectives> points, const Objectives& reference);

}  // namespace kvreplay
