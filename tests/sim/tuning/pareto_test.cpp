#include "sim/tuning/pareto.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.hpp"

namespace kvreplay {
namespace {

/// Points on a coarse grid, so that ties are common; some miss the constraints.
std::vector<Score> random_scores(std::uint64_t seed, std::size_t count) {
  Random random(seed);
  std::vector<Score> scores(count);
  for (Score& score : scores) {
    for (double& value : score.objectives) value = static_cast<double>(random.below(6));
    if (random.below(4) == 0) score.violation = static_cast<double>(1 + random.below(3));
  }
  return scores;
}

/// The definition: peel off front after front.
std::vector<std::size_t> ranks_by_peeling(std::span<const Score> scores) {
  constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<std::size_t> ranks(scores.size(), kNone);
  for (std::size_t rank = 0, left = scores.size(); left > 0; ++rank) {
    std::vector<std::size_t> front;
    for (std::size_t a = 0; a < scores.size(); ++a) {
      bool beaten = false;
      for (std::size_t b = 0; b < scores.size(); ++b) {
        beaten |= ranks[b] == kNone && better(scores[b], scores[a]);
      }
      if (ranks[a] == kNone && !beaten) front.push_back(a);
    }
    for (const std::size_t a : front) ranks[a] = rank;
    left -= front.size();
  }
  return ranks;
}

TEST(Pareto, RanksAreThoseOfPeelingFrontsOff) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<Score> scores = random_scores(seed, 1 + seed % 40);
    EXPECT_EQ(front_ranks(scores), ranks_by_peeling(scores)) << seed;
  }
  EXPECT_TRUE(front_ranks({}).empty());
}

TEST(Pareto, ConstraintsComeFirst) {
  const Score met{{9, 9, 9}, 0};
  const Score missed{{1, 1, 1}, 0.5};
  const Score missed_by_more{{0, 0, 0}, 0.6};
  EXPECT_TRUE(better(met, missed));
  EXPECT_FALSE(better(missed, met));
  EXPECT_TRUE(better(missed, missed_by_more));
  EXPECT_FALSE(better(met, met));
  EXPECT_FALSE(dominates({1, 2, 3}, {1, 2, 3}));
  EXPECT_TRUE(dominates({1, 2, 3}, {1, 2, 4}));
  EXPECT_FALSE(dominates({1, 2, 3}, {0, 9, 9}));
}

TEST(Pareto, CrowdingByHand) {
  // Along one line: the ends are infinitely far, the middle has the whole range in each objective.
  const std::vector<Objectives> front{{0, 4, 0}, {1, 3, 0}, {4, 0, 0}};
  const std::vector<double> distances = crowding_distances(front);
  EXPECT_TRUE(std::isinf(distances[0]));
  EXPECT_TRUE(std::isinf(distances[2]));
  EXPECT_DOUBLE_EQ(distances[1], (4 - 0) / 4.0 + (4 - 0) / 4.0);
  EXPECT_TRUE(crowding_distances({}).empty());
}

TEST(Pareto, HypervolumeByHand) {
  const Objectives reference{4, 4, 4};
  const std::vector<Objectives> one{{1, 2, 3}};
  EXPECT_DOUBLE_EQ(hypervolume(one, reference), 3 * 2 * 1);
  // 3x2x1 and 1x1x3 share 1x1x1.
  const std::vector<Objectives> two{{1, 2, 3}, {3, 3, 1}};
  EXPECT_DOUBLE_EQ(hypervolume(two, reference), 6 + 3 - 1);
  const std::vector<Objectives> beyond{{1, 2, 3}, {5, 0, 0}, {4, 0, 0}, {2, 2, 3}, {1, 2, 3}};
  EXPECT_DOUBLE_EQ(hypervolume(beyond, reference), 6);
  EXPECT_DOUBLE_EQ(hypervolume({}, reference), 0);
}

TEST(Pareto, HypervolumeCountsUnitCubes) {
  // On whole numbers the volume is the number of unit cubes with a dominating corner.
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::vector<Objectives> points;
    for (const Score& score : random_scores(seed, 1 + seed % 12)) {
      points.push_back(score.objectives);
    }
    const double side = 5;
    double cubes = 0;
    for (double x = 0; x < side; ++x) {
      for (double y = 0; y < side; ++y) {
        for (double z = 0; z < side; ++z) {
          bool inside = false;
          for (const Objectives& p : points) inside |= p[0] <= x && p[1] <= y && p[2] <= z;
          cubes += inside ? 1 : 0;
        }
      }
    }
    EXPECT_DOUBLE_EQ(hypervolume(points, {side, side, side}), cubes) << seed;
  }
}

}  // namespace
}  // namespace kvreplay
