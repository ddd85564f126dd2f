#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/half.hpp"
#include "policies/kernels/table.hpp"

namespace kvreplay::kernels {

/// LanesScalar in two 256-bit registers. Needs AVX2, FMA and F16C.
struct LanesAvx2 {
  static constexpr int kWidth = 16;
  static constexpr int kAccumulators = 4;
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 1;

  __m256 low;
  __m256 high;

  static LanesAvx2 all(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  static LanesAvx2 load(const float* from) {
    return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
  }
  static LanesAvx2 load(const Half* from) {
    const auto* halves = reinterpret_cast<const __m128i*>(from);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  }
  static LanesAvx2 load(const BFloat* from) {
    const auto* bits = reinterpret_cast<const __m128i*>(from);
    return {widen(_mm_loadu_si128(bits)), widen(_mm_loadu_si128(bits + 1))};
  }
  static LanesAvx2 load_first(const float* from, int n) {
    return {_mm256_maskload_ps(from, first(n)), _mm256_maskload_ps(from + 8, first(n - 8))};
  }
  static LanesAvx2 load_first(const Half* from, int n) {
    Half padded[kWidth] = {};
    for (int i = 0; i < n; ++i) padded[i] = from[i];
    return load(padded);
  }
  void store(float* to) const {
    _mm256_storeu_ps(to, low);
    _mm256_storeu_ps(to + 8, high);
  }
  void store(Half* to) const {
    auto* halves = reinterpret_cast<__m128i*>(to);
    _mm_storeu_si128(halves, _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT));
  }
  void store_first(float* to, int n) const {
    _mm256_maskstore_ps(to, first(n), low);
    _mm256_maskstore_ps(to + 8, first(n - 8), high);
  }
  void store_first(Half* to, int n) const {
    Half padded[kWidth];
    store(padded);
    for (int i = 0; i < n; ++i) to[i] = padded[i];
  }

  friend LanesAvx2 operator+(LanesAvx2 a, LanesAvx2 b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  friend LanesAvx2 operator-(LanesAvx2 a, LanesAvx2 b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }
  friend LanesAvx2 operator*(LanesAvx2 a, LanesAvx2 b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }
  friend LanesAvx2 operator/(LanesAvx2 a, LanesAvx2 b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
  }
  static LanesAvx2 fma(LanesAvx2 a, LanesAvx2 b, LanesAvx2 c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static LanesAvx2 max(LanesAvx2 a, LanesAvx2 b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }
  static LanesAvx2 if_greater(LanesAvx2 a, LanesAvx2 b, LanesAvx2 yes, LanesAvx2 no) {
    return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ)),
            _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ))};
  }
  static LanesAvx2 by_sign(LanesAvx2 sign, LanesAvx2 positive, LanesAvx2 negative) {
    return {_mm256_blendv_ps(positive.low, negative.low, sign.low),
            _mm256_blendv_ps(positive.high, negative.high, sign.high)};
  }
  static std::uint32_t at_least(LanesAvx2 a, LanesAvx2 b) {
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GE_OQ));
    const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GE_OQ));
    return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 8;
  }
  static LanesAvx2 scale_by_power(LanesAvx2 value, LanesAvx2 shifted) {
    return {scale_by_power(value.low, shifted.low), scale_by_power(value.high, shifted.high)};
  }
  static void sum4(LanesAvx2 a, LanesAvx2 b, LanesAvx2 c, LanesAvx2 d, float* sums) {
    // Each comment gives the vectors whose partial sums the register's 128-bit halves hold.
    const __m256 a8 = _mm256_add_ps(a.low, a.high);  // a | a, and so on
    const __m256 b8 = _mm256_add_ps(b.low, b.high);
    const __m256 c8 = _mm256_add_ps(c.low, c.high);
    const __m256 d8 = _mm256_add_ps(d.low, d.high);
    const __m256 ac = _mm256_add_ps(_mm256_permute2f128_ps(a8, c8, 0x20),
                                    _mm256_permute2f128_ps(a8, c8, 0x31));  // a | c
    const __m256 bd = _mm256_add_ps(_mm256_permute2f128_ps(b8, d8, 0x20),
                                    _mm256_permute2f128_ps(b8, d8, 0x31));  // b | d
    const __m256 abcd = _mm256_add_ps(_mm256_shuffle_ps(ac, bd, 0x44),
                                      _mm256_shuffle_ps(ac, bd, 0xee));  // aabb | ccdd
    const __m256 total = _mm256_add_ps(abcd, _mm256_permute_ps(abcd, 0xb1));
    _mm_storeu_ps(
        sums, _mm_shuffle_ps(_mm256_castps256_ps128(total), _mm256_extractf128_ps(total, 1), 0x88));
  }

 private:
  /// All bits set in the first n of 8 elements; n may be below 0 or above 8.
  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m256 widen(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static __m256 scale_by_power(__m256 value, __m256 shifted) {
    return _mm256_castsi256_ps(_mm256_add_epi32(
        _mm256_castps_si256(value), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
  }
};

}  // namespace kvreplay::kernels
