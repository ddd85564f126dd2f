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
#include <utility>
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

/// The smallest and the largest of at least kRun values, several side by side.
std::pair<float, float> ends(std::span<const float> values) {
  constexpr std::size_t kRun = 16;
  std::array<float, kRun> low;
  std::copy_n(values.begin(), kRun, low.begin());
  std::array<float, kRun> high = low;
  const auto take = [&](const float* from) {
    for (std::size_t i = 0; i < kRun; ++i) {
      low[i] = std::min(low[i], from[i]);
      high[i] = std::max(high[i], from[i]);
    }
  };
  std::size_t i = kRun;
  for (; i + kRun <= values.size(); i += kRun) take(values.data() + i);
  take(values.data() + values.size() - kRun);
  return {*std::min_element(low.begin(), low.end()), *std::max_element(high.begin(), high.end())};
}

/// The k-th largest of n values; 1 <= k <= n. They are counted in buckets of equal width, of which
/// only one has to be looked into. Reorders `values`.
float kth_largest(std::span<float> values, std::int64_t k) {
  constexpr std::int64_t kBuckets = 1024;
  constexpr std::int64_t kFewest = 256;  // below, the buckets cost more than they save
  const auto nth = [](std::span<float> from, std::int64_t rank) {
    std::nth_element(from.begin(), from.begin() + (rank - 1), from.end(), std::greater<>());
    return from[static_cast<std::size_t>(rank - 1)];
  };
  if (std::ssize(values) < kFewest) return nth(values, k);
  const auto [low, high] = ends(values);
  const float factor = static_cast<float>(kBuckets - 1) / (high - low);
  if (!std::isnormal(factor)) return nth(values, k);
  // Rounding keeps the order: a larger value is in the same bucket or in a higher one.
  const auto bucket = [low = low, factor](float value) {
    return static_cast<std::size_t>(static_cast<std::int32_t>((value - low) * factor));
  };
  std::array<std::int32_t, kBuckets + 1> counts{};
  for (const float value : values) ++counts[bucket(value)];
  std::size_t last = kBuckets;
  for (; k > counts[last]; --last) k -= counts[last];
  std::int64_t inside = 0;
  for (const float value : values) {
    if (bucket(value) == last) values[static_cast<std::size_t>(inside++)] = value;
  }
  return nth(values.first(static_cast<std::size_t>(inside)), k);
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
  thread_local std::vector<float> spare;
  values.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = scores[candidates[i]];
  spare = values;
  const float last = kth_largest(spare, k);
  thread_local std::vector<std::int32_t> reaching;
  reaching.resize(values.size());
  const std::int64_t found = table().find_at_least(values.data(), count, last, reaching.data());
  std::int64_t left_out = found - k;  // of those equal to the last one, the last ones
  for (std::int64_t i = found - 1, to = k - 1; i >= 0; --i) {
    const auto value = static_cast<std::size_t>(reaching[static_cast<std::size_t>(i)]);
    if (left_out > 0 && values[value] == last) {
      --left_out;
    } else {
      indices[static_cast<std::size_t>(to--)] = candidates[value];
    }
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
