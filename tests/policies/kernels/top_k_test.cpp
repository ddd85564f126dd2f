#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/policies/kernels/support.hpp"

namespace kvreplay::kernels {
namespace {

std::vector<std::int32_t> sorted_order(const std::vector<float>& scores) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return scores[at(a)] > scores[at(b)]; });
  return order;
}

void expect_top_k(const std::vector<float>& scores, std::int64_t k) {
  const auto n = static_cast<std::int64_t>(scores.size());
  std::vector<std::int32_t> expected = sorted_order(scores);
  expected.resize(at(std::min(k, n)));
  std::sort(expected.begin(), expected.end());
  for (const Isa isa : available_isas()) {
    const WithIsa with(isa);
    std::vector<std::int32_t> indices(expected.size() + 1, -7);
    top_k(scores.data(), n, k, indices);
    ASSERT_EQ(indices.back(), -7);
    indices.pop_back();
    ASSERT_EQ(indices, expected) << isa_name(isa) << " n " << n << " k " << k;
  }
}

void expect_order(const std::vector<float>& scores) {
  std::vector<std::int32_t> order(scores.size());
  order_descending(scores.data(), static_cast<std::int64_t>(scores.size()), order);
  EXPECT_EQ(order, sorted_order(scores));
}

/// Scores from a handful of values: many ties.
std::vector<float> tied_floats(std::int64_t n, std::uint64_t seed) {
  std::vector<float> scores = random_floats(n, seed);
  for (float& score : scores) score = std::round(score);
  return scores;
}

TEST(TopK, MatchesASort) {
  for (const std::int64_t n : {1, 2, 15, 16, 17, 33, 100, 1000, 4096, 5000, 20000}) {
    for (const std::int64_t k : {0, 1, 2, 15, 16, 17, 64, 256, 1024, 4999, 30000}) {
      expect_top_k(random_floats(n, 21), k);
      expect_top_k(tied_floats(n, 22), k);
    }
  }
}

TEST(TopK, TiesGoToTheLowerIndex) {
  expect_top_k(std::vector<float>(10000, 1.5f), 300);
  expect_top_k({0.0f, -0.0f, 0.0f, -0.0f, -1.0f}, 2);
  std::vector<float> two_values(8192, 0.0f);
  for (std::size_t i = 7; i < two_values.size(); i += 50) two_values[i] = 1.0f;
  expect_top_k(two_values, 100);
  expect_top_k(two_values, 163);
  expect_top_k(two_values, 164);
  expect_top_k(two_values, 165);
}

TEST(TopK, SurvivesScoresThatMisleadTheSample) {
  // Whatever the evenly spaced sample sees is large, and everything else is small. Then the
  // reverse.
  const std::int64_t n = 65536;
  std::vector<float> scores = random_floats(n, 23);
  for (std::int64_t i = 0; i < n; i += 128) scores[at(i)] += 100.0f;
  expect_top_k(scores, 256);
  expect_top_k(scores, 600);
  for (float& score : scores) score = -score;
  expect_top_k(scores, 256);
  std::iota(scores.begin(), scores.end(), 0.0f);
  expect_top_k(scores, 1000);
  std::reverse(scores.begin(), scores.end());
  expect_top_k(scores, 1000);
}

TEST(TopK, InfinitiesAreScores) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> scores(6000, -kInfinity);
  scores[10] = 1.0f;
  scores[5000] = kInfinity;
  for (const std::int64_t k : {1, 2, 3, 100, 6000}) expect_top_k(scores, k);
}

TEST(OrderDescending, MatchesAStableSort) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t n : kAwkwardSizes) {
    expect_order(random_floats(n, 24));
    expect_order(tied_floats(n, 25));
  }
  expect_order(random_floats(50000, 26));
  expect_order(tied_floats(50000, 27));
  expect_order({0.0f, -0.0f, 1.0f, -kInfinity, kInfinity, -1e-45f, 1e-45f, -0.0f, 0.0f});
  expect_order({});
}

}  // namespace
}  // namespace kvreplay::kernels
