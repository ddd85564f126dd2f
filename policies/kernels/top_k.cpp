#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "policies/kernels/dispatch.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay::kernels {
namespace {

/// A score that some k of the n scores, and few more, probably reach: taken from an evenly spaced
/// sample. -inf when a sample would not help.
float guess_threshold(const float* scores, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kSamples = 512;
  const std::int64_t step = n / kSamples;
  // Among the samples the expected count of the k largest, and four standard deviations.
  const double expected = static_cast<double>(k) * kSamples / static_cast<double>(n);
  const auto rank = static_cast<std::int64_t>(expected + 4.0 * std::sqrt(expected) + 4.0);
  if (step < 4 || rank >= kSamples) return -std::numeric_limits<float>::infinity();
  std::array<float, kSamples> sample;
  for (std::int64_t i = 0; i < kSamples; ++i)
    sample[static_cast<std::size_t>(i)] = scores[i * step];
  std::nth_element(sample.begin(), sample.begin() + rank, sample.end(), std::greater<>());
  return sample[static_cast<std::size_t>(rank)];
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

  // The k-th largest score; those above it are in, and of those equal to it the first ones.
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
  assert(indices.size() >= static_cast<std::size_t>(n));
  // One integer that grows as the score falls, then with the index: sorting it needs no comparator.
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(scores[i] + 0.0f);  // -0 becomes +0: they tie
    const std::uint32_t falling = (bits & 0x80000000u) != 0 ? bits : bits ^ 0x7fffffffu;
    keys[i] = static_cast<std::uint64_t>(falling) << 32 | i;
  }
  std::sort(keys.begin(), keys.end());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    indices[i] = static_cast<std::int32_t>(keys[i] & 0xffffffffu);
  }
}

}  // namespace kvreplay::kernels
