#include "base/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/random.hpp"

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

TEST(Statistics, SelectedPercentilesAreThoseOfSortedValues) {
  std::vector<int> none;
  EXPECT_EQ(AscendingPercentiles(none)(0.5), 0);
  Random random(3);
  for (const std::size_t count : {1, 2, 3, 10, 1000, 1001}) {
    std::vector<int> values(count);
    for (int& value : values) value = static_cast<int>(random.below(count));
    std::vector<int> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    AscendingPercentiles selected(values);
    for (const double share : {0.0, 0.25, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0, 1.0}) {
      ASSERT_EQ(selected(share), percentile(sorted, share)) << count << " " << share;
    }
  }
}

}  // namespace
}  // namespace kvreplay
