#include "base/statistics.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace kvreplay {
namespace {

TEST(Statistics, AMedianIsTheMiddleOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 4}), 4);
  EXPECT_EQ(median({9, 1, 4, 2}), 3);
}

TEST(Statistics, APercentileIsTheFirstValueThatEnoughDoNotExceed) {
  EXPECT_EQ(percentile(std::vector<int>{}, 0.5), 0);
  EXPECT_EQ(percentile(std::vector<int>{7}, 0), 7);
  EXPECT_EQ(percentile(std::vector<int>{7}, 1), 7);
  const std::vector<int> four{1, 2, 4, 9};
  EXPECT_EQ(percentile(four, 0.25), 1);
  EXPECT_EQ(percentile(four, 0.26), 2);
  EXPECT_EQ(percentile(four, 0.5), 2);
  EXPECT_EQ(percentile(four, 1), 9);
}

/// Compared with integer arithmetic, because in binary 0.999 * 4000 may exceed 3996.
TEST(Statistics, APercentilesRankIsExact) {
  for (std::uint64_t count = 1; count <= 20000; count += count < 2000 ? 1 : 1000) {
    for (std::uint64_t tenths = 1; tenths <= 1000; ++tenths) {
      ASSERT_EQ(percentile_rank(count, static_cast<double>(tenths) / 10 / 100),
                (count * tenths + 999) / 1000)
          << count << " " << tenths;
    }
  }
}

}  // namespace
}  // namespace kvreplay
