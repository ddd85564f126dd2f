#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/half.hpp"
#include "policies/kernels/table.hpp"

namespace kvreplay::kernels {

/// LanesScalar in two 256-bit registers, of `kRegisters` that there are. Needs AVX2, FMA and F16C.
/// With 32 registers it is a type of its own, which only the source compiled for AVX-512 uses.
template <int kRegisters>
struct LanesPair {
  using OneQuery = LanesPair;
  static constexpr int kWidth = 16;
  static constexpr int kAccumulators = kRegisters == 32 ? 12 : 4;
  static constexpr int kTileQueries = 4;
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 1;

  __m256 low;
  __m256 high;

  static LanesPair all(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  static LanesPair load(const float* from) {
    return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
  }
  static LanesPair load(const Half* from) {
    const auto* halves = reinterpret_cast<const __m128i*>(from);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  }
  static LanesPair load(const BFloat* from) {
    const auto* bits = reinterpret_cast<const __m128i*>(from);
    return {widen(_mm_loadu_si128(bits)), widen(_mm_loadu_si128(bits + 1))};
  }
  static LanesPair load_first(const float* from, int n) {
    return {_mm256_maskload_ps(from, first(n)), _mm256_maskload_ps(from + 8, first(n - 8))};
  }
  static LanesPair load_first(const Half* from, int n) {
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

  friend LanesPair operator+(LanesPair a, LanesPair b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  friend LanesPair operator-(LanesPair a, LanesPair b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }
  friend LanesPair operator*(LanesPair a, LanesPair b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }
  friend LanesPair operator/(LanesPair a, LanesPair b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
  }
  static LanesPair fma(LanesPair a, LanesPair b, LanesPair c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static LanesPair max(LanesPair a, LanesPair b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }
  static LanesPair if_greater(LanesPair a, LanesPair b, LanesPair yes, LanesPair no) {
    return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ)),
            _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ))};
  }
  static LanesPair by_sign(LanesPair sign, LanesPair positive, LanesPair negative) {
    return {_mm256_blendv_ps(positive.low, negative.low, sign.low),
            _mm256_blendv_ps(positive.high, negative.high, sign.high)};
  }
  static std::uint32_t at_least(LanesPair a, LanesPair b) {
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GE_OQ));
    const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GE_OQ));
    return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 8;
  }
  static int list(std::uint32_t bits, std::int32_t first, std::int32_t* to) {
    int count = 0;
    for (; bits != 0; bits &= bits - 1) to[count++] = first + __builtin_ctz(bits);
    return count;
  }
  static LanesPair scale_by_power(LanesPair value, LanesPair shifted) {
    return {scale_by_power(value.low, shifted.low), scale_by_power(value.high, shifted.high)};
  }
  static LanesPair quarter4(LanesPair a, LanesPair b, LanesPair c, LanesPair d) {
    return {quarter2(a, b), quarter2(c, d)};
  }
  static LanesPair finish4(LanesPair a, LanesPair b, LanesPair c, LanesPair d) {
    // Of each half: the first vector of a, b, c and d, then the second.
    const __m256 low = finish2(a.low, b.low, c.low, d.low);
    const __m256 high = finish2(a.high, b.high, c.high, d.high);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return {_mm256_permutevar8x32_ps(_mm256_unpacklo_ps(low, high), order),
            _mm256_permutevar8x32_ps(_mm256_unpackhi_ps(low, high), order)};
  }
  static float largest(LanesPair a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
  }

 private:
  /// All bits set in the first n of 8 elements; n may be below 0 or above 8.
  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  /// Four partial sums of a, then of b.
  static __m256 quarter2(LanesPair a, LanesPair b) {
    const __m256 a8 = _mm256_add_ps(a.low, a.high);
    const __m256 b8 = _mm256_add_ps(b.low, b.high);
    return _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20),
                         _mm256_permute2f128_ps(a8, b8, 0x31));
  }
  static __m256 finish2(__m256 a, __m256 b, __m256 c, __m256 d) {
    const __m256 ab = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
    const __m256 cd = _mm256_add_ps(_mm256_shuffle_ps(c, d, 0x44), _mm256_shuffle_ps(c, d, 0xee));
    return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x88), _mm256_shuffle_ps(ab, cd, 0xdd));
  }
  static __m256 widen(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static __m256 scale_by_power(__m256 value, __m256 shifted) {
    return _mm256_castsi256_ps(_mm256_add_epi32(
        _mm256_castps_si256(value), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
  }
};

using LanesAvx2 = LanesPair<16>;

}  // namespace kvreplay::kernels
