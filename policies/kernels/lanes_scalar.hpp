#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/half.hpp"
#include "policies/kernels/table.hpp"

namespace kvreplay::kernels {

/// Sixteen floats that every instruction set handles alike. This plain form is the specification:
/// lanes_avx2.hpp and lanes_avx512.hpp give the same bits with vector registers. The algorithms
/// (algorithms.hpp) are templates over such a type. NaN is outside the contract.
struct LanesScalar {
  using OneQuery = LanesScalar;  ///< what the scores of a single query take
  static constexpr int kWidth = 16;
  /// How many of these fit in registers as running sums, beside their inputs.
  static constexpr int kAccumulators = 4;
  static constexpr int kTileQueries = 4;
  /// Register tile of the nearest-centroid search: rows by vectors of 16 centroids.
  static constexpr int kTileRows = 1;
  static constexpr int kTileVectors = 1;

  float lane[kWidth];

  static LanesScalar all(float value) {
    return each([&](int) { return value; });
  }
  static LanesScalar load(const float* from) {
    return each([&](int i) { return from[i]; });
  }
  static LanesScalar load(const Half* from) {
    return each([&](int i) { return to_float(from[i]); });
  }
  static LanesScalar load(const BFloat* from) {
    return each([&](int i) { return bfloat16_to_float(from[i].bits); });
  }
  /// The first n elements (n < 16), then zeros; reads nothing beyond them.
  static LanesScalar load_first(const float* from, int n) {
    return each([&](int i) { return i < n ? from[i] : 0.0f; });
  }
  static LanesScalar load_first(const Half* from, int n) {
    return each([&](int i) { return i < n ? to_float(from[i]) : 0.0f; });
  }
  void store(float* to) const { store_first(to, kWidth); }
  void store(Half* to) const { store_first(to, kWidth); }
  void store_first(float* to, int n) const {
    for (int i = 0; i < n; ++i) to[i] = lane[i];
  }
  void store_first(Half* to, int n) const {
    for (int i = 0; i < n; ++i) to[i] = to_half(lane[i]);
  }

  friend LanesScalar operator+(const LanesScalar& a, const LanesScalar& b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  friend LanesScalar operator-(const LanesScalar& a, const LanesScalar& b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  friend LanesScalar operator*(const LanesScalar& a, const LanesScalar& b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  friend LanesScalar operator/(const LanesScalar& a, const LanesScalar& b) {
    return each([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  /// a * b + c, rounded once.
  static LanesScalar fma(const LanesScalar& a, const LanesScalar& b, const LanesScalar& c) {
    return each([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static LanesScalar max(const LanesScalar& a, const LanesScalar& b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  /// a > b ? yes : no.
  static LanesScalar if_greater(const LanesScalar& a, const LanesScalar& b, const LanesScalar& yes,
                                const LanesScalar& no) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? yes.lane[i] : no.lane[i]; });
  }
  /// `negative` where the sign bit of `sign` is set, `positive` elsewhere.
  static LanesScalar by_sign(const LanesScalar& sign, const LanesScalar& positive,
                             const LanesScalar& negative) {
    return each(
        [&](int i) { return std::signbit(sign.lane[i]) ? negative.lane[i] : positive.lane[i]; });
  }
  /// Bit i is set where lane i of a >= lane i of b.
  static std::uint32_t at_least(const LanesScalar& a, const LanesScalar& b) {
    std::uint32_t bits = 0;
    for (int i = 0; i < kWidth; ++i)
      bits |= static_cast<std::uint32_t>(a.lane[i] >= b.lane[i]) << i;
    return bits;
  }
  /// Writes first + i for each bit i that is set, ascending, and may write anything to the rest of
  /// to[0, kWidth). Returns how many bits are set.
  static int list(std::uint32_t bits, std::int32_t first, std::int32_t* to) {
    int count = 0;
    for (; bits != 0; bits &= bits - 1) to[count++] = first + __builtin_ctz(bits);
    return count;
  }
  /// value * 2^n, where n is in the low bits of `shifted` = n + 1.5 * 2^23. No overflow check.
  static LanesScalar scale_by_power(const LanesScalar& value, const LanesScalar& shifted) {
    return each([&](int i) {
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value.lane[i]) +
                                  (std::bit_cast<std::uint32_t>(shifted.lane[i]) << 23));
    });
  }
  // The sum of a vector's lanes, always in the same tree: lane i + lane i+8, then i+4, i+2, i+1.

  /// The first two levels of the tree, of four vectors: four partial sums each, side by side.
  static LanesScalar quarter4(const LanesScalar& a, const LanesScalar& b, const LanesScalar& c,
                              const LanesScalar& d) {
    const LanesScalar* const of[4] = {&a, &b, &c, &d};
    return each([&](int i) {
      const float* from = of[i / 4]->lane + i % 4;
      return (from[0] + from[8]) + (from[4] + from[12]);
    });
  }
  /// The last two levels, of sixteen vectors given by fours: the sums, in their order.
  static LanesScalar finish4(const LanesScalar& a, const LanesScalar& b, const LanesScalar& c,
                             const LanesScalar& d) {
    const LanesScalar* const of[4] = {&a, &b, &c, &d};
    return each([&](int i) {
      const float* from = of[i / 4]->lane + i % 4 * 4;
      return (from[0] + from[2]) + (from[1] + from[3]);
    });
  }
  static float largest(const LanesScalar& a) {
    float largest = a.lane[0];
    for (int i = 1; i < kWidth; ++i) largest = a.lane[i] > largest ? a.lane[i] : largest;
    return largest;
  }

 private:
  template <typename Function>
  static LanesScalar each(Function function) {
    LanesScalar result;
    for (int i = 0; i < kWidth; ++i) result.lane[i] = function(i);
    return result;
  }
};

}  // namespace kvreplay::kernels
