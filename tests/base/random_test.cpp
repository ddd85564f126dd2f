#include "base/random.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <vector>

namespace kvreplay {
namespace {

using testing::ElementsAre;

/// The seeds and streams of stored results depend on these numbers. They follow from the published
/// definitions of splitmix64 and xoshiro256**, which are written out once more below.
TEST(RandomTest, IsXoshiroSeededBySplitmix) {
  constexpr std::uint64_t kSeed = 12345;
  std::array<std::uint64_t, 4> s{};
  std::uint64_t x = kSeed;
  for (std::uint64_t& word : s) {
    std::uint64_t z = (x += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    word = z ^ (z >> 31);
  }
  const auto rotl = [](std::uint64_t v, int k) { return (v << k) | (v >> (64 - k)); };
  Random random(kSeed);
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t expected = rotl(s[1] * 5, 7) * 9;
    const std::uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    ASSERT_EQ(random.next(), expected) << i;
  }
}

/// splitmix64's published first outputs for seed 0 are the generator's state words; its first value
/// follows from the second of them, 0x6e789e6aa1b965f4.
TEST(RandomTest, KnownFirstValue) {
  constexpr std::uint64_t kSecondWord = 0x6e789e6aa1b965f4;
  const std::uint64_t product = kSecondWord * 5;
  EXPECT_EQ(Random(0).next(), ((product << 7) | (product >> 57)) * 9);
}

TEST(RandomTest, BelowStaysBelowAndReachesAll) {
  Random random(7);
  EXPECT_EQ(random.below(1), 0U);
  std::array<int, 5> counts{};
  for (int i = 0; i < 5000; ++i) ++counts.at(random.below(5));
  // Binomial with mean 1000 and deviation 28: seven deviations either way.
  for (const int count : counts) EXPECT_NEAR(count, 1000, 200);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(random.below(~std::uint64_t{0}), ~std::uint64_t{0});
}

TEST(RandomTest, UniformLiesInItsHalfOpenRange) {
  Random random(3);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = random.uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(RandomTest, ShuffleIsAPermutationThatTheSeedFixes) {
  const auto shuffled = [](std::uint64_t seed) {
    std::vector<int> items(50);
    std::iota(items.begin(), items.end(), 0);
    Random(seed).shuffle(std::span(items));
    return items;
  };
  EXPECT_EQ(shuffled(1), shuffled(1));
  EXPECT_NE(shuffled(1), shuffled(2));
  std::vector<int> sorted = shuffled(1);
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> expected(50);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(sorted, expected);
  std::vector<int> one = {4};
  Random(1).shuffle(std::span(one));
  EXPECT_THAT(one, ElementsAre(4));
}

TEST(RandomTest, DerivedSeedsDiffer) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    for (std::uint64_t index = 0; index < 30; ++index) seeds.insert(Random::derive(seed, index));
  }
  EXPECT_EQ(seeds.size(), 900U);
}

}  // namespace
}  // namespace kvreplay
