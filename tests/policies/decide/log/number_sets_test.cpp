#include "policies/decide/log/number_sets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/random.hpp"

namespace kvreplay {
namespace {

using Numbers = std::vector<std::int32_t>;

TEST(NumberSets, GiveBackWhatTheyWereGiven) {
  Random random(7);
  NumberSets sets;
  std::vector<Numbers> expected;
  for (int set = 0; set < 60; ++set) {
    Numbers numbers;
    const std::uint64_t sparse = 1 + random.below(400);
    for (std::int32_t number = 0; number < 2000; ++number) {
      if (random.below(sparse) == 0) numbers.push_back(number);
    }
    if (set % 7 == 0) numbers.clear();
    if (set % 7 == 1) numbers.push_back(2147483646);
    sets.add(numbers);
    expected.push_back(numbers);
  }
  ASSERT_EQ(sets.size(), 60);
  EXPECT_TRUE(sets.valid());
  for (std::int64_t set = 0; set < sets.size(); ++set) {
    const Numbers& numbers = expected[static_cast<std::size_t>(set)];
    EXPECT_EQ(sets.numbers(set), numbers);
    EXPECT_EQ(sets.count(set), std::ssize(numbers));
    for (const std::int32_t number : {0, 1, 500, 1999, 2147483646}) {
      EXPECT_EQ(sets.contains(set, number),
                std::binary_search(numbers.begin(), numbers.end(), number));
    }
  }
  EXPECT_EQ(NumberSets(sets.begin(), sets.bytes()), sets);
}

TEST(NumberSets, AllNumbersTakeAFewBytes) {
  Numbers all(1'000'000);
  std::iota(all.begin(), all.end(), 0);
  NumberSets sets;
  sets.add(all);
  EXPECT_LE(sets.bytes().size(), 4u);
  EXPECT_EQ(sets.count(0), 1'000'000);
}

TEST(NumberSets, BytesThatAreNoRunsAreFound) {
  const auto valid = [](std::vector<std::uint8_t> bytes) {
    const std::int64_t end = std::ssize(bytes);
    return NumberSets({0, end}, std::move(bytes)).valid();
  };
  EXPECT_TRUE(valid({}));
  EXPECT_TRUE(valid({3, 1, 0x80, 1, 2}));
  EXPECT_FALSE(valid({3}));                                   // no length
  EXPECT_FALSE(valid({3, 0}));                                // no number
  EXPECT_FALSE(valid({3, 0x81}));                             // the integer does not end
  EXPECT_FALSE(valid({0xff, 0xff, 0xff, 0xff, 0xff, 1, 1}));  // too large
  EXPECT_FALSE(valid({0xff, 0xff, 0xff, 0xff, 0x0f, 1}));
}

}  // namespace
}  // namespace kvreplay
