#include "base/rank_correlation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvreplay {
namespace {

using Values = std::vector<double>;

TEST(RankCorrelation, OfTheSameAndTheOppositeOrder) {
  const Values a{3, 1, 4, 1.5, 9};
  Values cubes;
  Values negative;
  for (const double x : a) {
    cubes.push_back(x * x * x);
    negative.push_back(-x);
  }
  EXPECT_DOUBLE_EQ(spearman(a, cubes), 1);
  EXPECT_DOUBLE_EQ(kendall(a, cubes), 1);
  EXPECT_DOUBLE_EQ(spearman(a, negative), -1);
  EXPECT_DOUBLE_EQ(kendall(a, negative), -1);
}

TEST(RankCorrelation, WithoutTiesIsTheTextbookFormula) {
  const Values a{1, 2, 3, 4, 5};
  const Values b{2, 1, 4, 3, 5};  // rank differences -1 1 -1 1 0; two pairs of ten discordant
  EXPECT_DOUBLE_EQ(spearman(a, b), 1 - 6.0 * 4 / (5 * 24));
  EXPECT_DOUBLE_EQ(kendall(a, b), 0.6);
}

TEST(RankCorrelation, TiesShareARank) {
  const Values a{1, 2, 2, 3};
  const Values b{1, 2, 3, 4};
  // Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
  EXPECT_DOUBLE_EQ(spearman(a, b), 4.5 / std::sqrt(4.5 * 5));
  EXPECT_DOUBLE_EQ(kendall(a, b), 5 / std::sqrt(5.0 * 6));
  EXPECT_DOUBLE_EQ(kendall(b, a), kendall(a, b));
}

TEST(RankCorrelation, OfNoOrderIsNoNumber) {
  EXPECT_TRUE(std::isnan(spearman(Values{1}, Values{2})));
  EXPECT_TRUE(std::isnan(kendall(Values{1, 1}, Values{2, 3})));
}

}  // namespace
}  // namespace kvreplay
