// By hand: faster than std::nth_element over all scores (kernels_benchmark.cpp compares them).

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "policies/kernels/dispatch.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay::kernels {
namespace {

/// A score that probably k of the n scores, and few more, reach: taken from an evenly spaced
/// sample. -inf when a sample would not help.
float guess_threshold(const float* scores, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kSamples = 512;
  const std::int64_t step = n / kSamples;
  // Among the samples: the expected count of the k largest, plus four standard deviations.
  const double expected = static_cast<double>(k) * kSamples / static_cast<double>(n);
  const auto rank = static_cast<std::int64_t>(expected + 4.0 * std::sqrt(expected) + 4.0);
  if (step < 4 || rank >= kSamples) return -std::numeric_limits<float>::infinity();
  std::array<float, kSamples> sample;
  for (std::int64_t i = 0; i < kSamples; ++i)
    sample[static_cast<std::size_t>(i)] = scores[i * step];
  std::nth_element(sample.begin(), sample.begin() + rank, sample.end(), std::greater<>());
  return sample[static_cast<std::size_t>(rank)];
}

/// An integer that grows as the score falls. -0 and +0 map to the same integer: they tie.
std::uint32_t falling_key(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? bits : bits ^ 0x7fffffffu;
}

}  // namespace

void top_k(const float* scores, std::int64_t n, std::int64_t k, std::span<std::int32_t> indices) {
  k = std::min(k, n);
  assert(k >= 0 && indices.size() >= static_cast<std::size_t>(k));
  if (k == 0) return;

  // Candidates: every score that reaches a threshold which at least k reach.
  thread_local std::vector<std::int32_t> candidates;
  candidates.resize(static_cast<std::size_t>(n));
  const float threshold = guess_threshold(scores, n, k);
  std::int64_t count = table().find_at_least(scores, n, threshold, candidates.data());
  if (count < k) {
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    count = table().find_at_least(scores, n, kLowest, candidates.data());
  }
  assert(count >= k);

  // The k-th largest score: those above it are included, and of those equal to it the first ones.
  thread_local std::vector<float> values;
  values.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = scores[candidates[i]];
  const auto kth = values.begin() + (k - 1);
  std::nth_element(values.begin(), kth, values.end(), std::greater<>());
  const float last = *kth;
  std::int64_t ties = k - std::count_if(values.begin(), kth, [=](float v) { return v > last; });
  std::size_t taken = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const float score = scores[candidates[i]];
    if (score > last || (score == last && ties-- > 0)) indices[taken++] = candidates[i];
  }
}

void order_descending(const float* scores, std::int64_t n, std::span<std::int32_t> indices) {
  const auto count = static_cast<std::size_t>(n);
  assert(indices.size() >= count);
  // A radix sort from the lowest digit up. Each pass keeps the order of equal digits, so ties stay
  // in the order of their indices.
  constexpr std::size_t kDigitBits = 11;
  constexpr std::size_t kPasses = 3;
  constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
  struct Item {
    std::uint32_t key;
    std::int32_t index;
  };
  std::vector<Item> items(count);
  std::array<std::array<std::uint32_t, kDigits>, kPasses> starts{};
  const auto digit = [](std::uint32_t key, std::size_t pass) {
    return (key >> (pass * kDigitBits)) & (kDigits - 1);
  };
  for (std::size_t i = 0; i < count; ++i) {
    items[i] = {falling_key(scores[i]), static_cast<std::int32_t>(i)};
    for (std::size_t pass = 0; pass < kPasses; ++pass) ++starts[pass][digit(items[i].key, pass)];
  }
  std::vector<Item> sorted(count);
  for (std::size_t pass = 0; pass < kPasses; ++pass) {
    std::exclusive_scan(starts[pass].begin(), starts[pass].end(), starts[pass].begin(), 0u);
    for (const Item item : items) sorted[starts[pass][digit(item.key, pass)]++] = item;
    items.swap(sorted);
  }
  for (std::size_t i = 0; i < count; ++i) indices[i] = items[i].index;
}

}  // namespace kvreplay::kernels
