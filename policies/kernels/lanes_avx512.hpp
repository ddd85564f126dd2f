#pragma once

// g++ 12 reports the undefined operand inside its own intrinsics as our error.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

#include <cstdint>

#include "base/half.hpp"
#include "policies/kernels/lanes_avx2.hpp"
#include "policies/kernels/table.hpp"

namespace kvreplay::kernels {

/// LanesScalar in one 512-bit register. Needs AVX-512 F, BW, DQ and VL, and what AVX2 needs.
struct LanesAvx512 {
  /// Zen 4 converts halves in 256-bit registers at nearly twice the rate of 512-bit ones, and
  /// multiplies at the same: one query's scores are bound by the conversion.
  using OneQuery = LanesPair<32>;
  static constexpr int kWidth = 16;
  static constexpr int kAccumulators = 24;
  static constexpr int kTileQueries = 6;
  static constexpr int kTileRows = 8;
  static constexpr int kTileVectors = 2;

  __m512 lanes;

  static LanesAvx512 all(float value) { return {_mm512_set1_ps(value)}; }
  static LanesAvx512 load(const float* from) { return {_mm512_loadu_ps(from)}; }
  static LanesAvx512 load(const Half* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  }
  static LanesAvx512 load(const BFloat* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  static LanesAvx512 load_first(const float* from, int n) {
    return {_mm512_maskz_loadu_ps(first(n), from)};
  }
  static LanesAvx512 load_first(const Half* from, int n) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), from))};
  }
  void store(float* to) const { _mm512_storeu_ps(to, lanes); }
  void store(Half* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtps_ph(lanes, _MM_FROUND_TO_NEAREST_INT));
  }
  void store_first(float* to, int n) const { _mm512_mask_storeu_ps(to, first(n), lanes); }
  void store_first(Half* to, int n) const {
    _mm256_mask_storeu_epi16(to, first(n), _mm512_cvtps_ph(lanes, _MM_FROUND_TO_NEAREST_INT));
  }

  friend LanesAvx512 operator+(LanesAvx512 a, LanesAvx512 b) {
    return {_mm512_add_ps(a.lanes, b.lanes)};
  }
  friend LanesAvx512 operator-(LanesAvx512 a, LanesAvx512 b) {
    return {_mm512_sub_ps(a.lanes, b.lanes)};
  }
  friend LanesAvx512 operator*(LanesAvx512 a, LanesAvx512 b) {
    return {_mm512_mul_ps(a.lanes, b.lanes)};
  }
  friend LanesAvx512 operator/(LanesAvx512 a, LanesAvx512 b) {
    return {_mm512_div_ps(a.lanes, b.lanes)};
  }
  static LanesAvx512 fma(LanesAvx512 a, LanesAvx512 b, LanesAvx512 c) {
    return {_mm512_fmadd_ps(a.lanes, b.lanes, c.lanes)};
  }
  static LanesAvx512 max(LanesAvx512 a, LanesAvx512 b) { return {_mm512_max_ps(a.lanes, b.lanes)}; }
  static LanesAvx512 if_greater(LanesAvx512 a, LanesAvx512 b, LanesAvx512 yes, LanesAvx512 no) {
    const __mmask16 greater = _mm512_cmp_ps_mask(a.lanes, b.lanes, _CMP_GT_OQ);
    return {_mm512_mask_blend_ps(greater, no.lanes, yes.lanes)};
  }
  static LanesAvx512 by_sign(LanesAvx512 sign, LanesAvx512 positive, LanesAvx512 negative) {
    const __mmask16 below = _mm512_movepi32_mask(_mm512_castps_si512(sign.lanes));
    return {_mm512_mask_blend_ps(below, positive.lanes, negative.lanes)};
  }
  static std::uint32_t at_least(LanesAvx512 a, LanesAvx512 b) {
    return _mm512_cmp_ps_mask(a.lanes, b.lanes, _CMP_GE_OQ);
  }
  static int list(std::uint32_t bits, std::int32_t first, std::int32_t* to) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i numbers = _mm512_add_epi32(_mm512_set1_epi32(first), lane);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(static_cast<__mmask16>(bits), numbers));
    return __builtin_popcount(bits);
  }
  static LanesAvx512 scale_by_power(LanesAvx512 value, LanesAvx512 shifted) {
    const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted.lanes), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(value.lanes), exponent))};
  }
  static LanesAvx512 quarter4(LanesAvx512 a, LanesAvx512 b, LanesAvx512 c, LanesAvx512 d) {
    // Each comment gives the vectors whose partial sums the register's 128-bit quarters hold.
    const __m512 ab = halve(a.lanes, b.lanes);  // a a b b
    const __m512 cd = halve(c.lanes, d.lanes);  // c c d d
    return {_mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88),
                          _mm512_shuffle_f32x4(ab, cd, 0xdd))};  // a b c d
  }
  static LanesAvx512 finish4(LanesAvx512 a, LanesAvx512 b, LanesAvx512 c, LanesAvx512 d) {
    // In each quarter: two partial sums of a vector from a and one from b; then a sum from each.
    const __m512 ab = add_halves(a.lanes, b.lanes);
    const __m512 cd = add_halves(c.lanes, d.lanes);
    const __m512 abcd =
        _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x88), _mm512_shuffle_ps(ab, cd, 0xdd));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return {_mm512_permutexvar_ps(order, abcd)};
  }
  static float largest(LanesAvx512 a) { return _mm512_reduce_max_ps(a.lanes); }

 private:
  /// Bits 0 to n-1; n < 16.
  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  /// The lower half plus the upper half, of a and of b. (The lower half of b is added to the upper:
  /// a blend is cheaper than a second shuffle, and a sum does not depend on the order of its two
  /// operands.)
  static __m512 halve(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
  }
  /// In each quarter: its lower half plus its upper half, of a and of b.
  static __m512 add_halves(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
};

}  // namespace kvreplay::kernels
