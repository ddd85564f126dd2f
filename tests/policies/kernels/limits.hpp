#pragma once

// The machine's own limits, by the best loops that we know: what a kernel's time is set against.

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "policies/kernels/kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvreplay::kernels {

#if defined(__x86_64__)
__attribute__((target("avx512f"))) inline double read_avx512(const char* data, std::size_t bytes) {
  __m512i sum[4] = {};
  for (std::size_t i = 0; i + 256 <= bytes; i += 256) {
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 4; ++k) {
      sum[k] = _mm512_add_epi64(sum[k], _mm512_loadu_si512(data + i + 64 * k));
    }
  }
  const __m512i all =
      _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
  std::int64_t lanes[8];
  _mm512_storeu_si512(lanes, all);
  return static_cast<double>(lanes[0]);
}

__attribute__((target("avx2"))) inline double read_avx2(const char* data, std::size_t bytes) {
  __m256i sum[4] = {};
  for (std::size_t i = 0; i + 128 <= bytes; i += 128) {
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 4; ++k) {
      const auto* from = reinterpret_cast<const __m256i*>(data + i + 32 * k);
      sum[k] = _mm256_add_epi64(sum[k], _mm256_loadu_si256(from));
    }
  }
  const __m256i all =
      _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
  return static_cast<double>(_mm256_extract_epi64(all, 0));
}

__attribute__((target("avx512f"))) inline double multiply_avx512() {
  __m512 sum[10];
  for (__m512& s : sum) s = _mm512_set1_ps(1.0f);
  const __m512 factor = _mm512_set1_ps(0.5f);
  for (int i = 0; i < 625000; ++i) {
#pragma GCC unroll 10
    for (__m512& s : sum) s = _mm512_fmadd_ps(s, factor, factor);
  }
  __m512 all = sum[0];
  for (int k = 1; k < 10; ++k) all = _mm512_add_ps(all, sum[k]);
  float lanes[16];
  _mm512_storeu_ps(lanes, all);
  return static_cast<double>(lanes[0]);
}

__attribute__((target("avx2,fma"))) inline double multiply_avx2() {
  __m256 sum[10];
  for (__m256& s : sum) s = _mm256_set1_ps(1.0f);
  const __m256 factor = _mm256_set1_ps(0.5f);
  for (int i = 0; i < 1250000; ++i) {
#pragma GCC unroll 10
    for (__m256& s : sum) s = _mm256_fmadd_ps(s, factor, factor);
  }
  __m256 all = sum[0];
  for (int k = 1; k < 10; ++k) all = _mm256_add_ps(all, sum[k]);
  return static_cast<double>(_mm256_cvtss_f32(all));
}

// Of 8 bits. One factor comes from the first-level cache, as a row's codes would; it differs, so
// that no compiler multiplies once for all.

__attribute__((target("avx512f,avx512bw,avx512vnni"))) inline double multiply8_vnni(
    const char* cached) {
  __m512i sum[10] = {};
  const __m512i factor = _mm512_loadu_si512(cached);
  for (int i = 0; i < 1250000; ++i) {
    const char* from = cached + i % 64 * 64;
#pragma GCC unroll 10
    for (int k = 0; k < 10; ++k) {
      sum[k] = _mm512_dpbusd_epi32(sum[k], _mm512_loadu_si512(from + 64 * k), factor);
    }
  }
  __m512i all = sum[0];
  for (int k = 1; k < 10; ++k) all = _mm512_add_epi32(all, sum[k]);
  std::int32_t lanes[16];
  _mm512_storeu_si512(lanes, all);
  return lanes[0];
}

__attribute__((target("avx2"))) inline double multiply8_avx2(const char* cached) {
  __m256i sum[10] = {};
  const __m256i one = _mm256_set1_epi16(1);
  for (int i = 0; i < 2500000; ++i) {
    const char* from = cached + i % 128 * 32;
    const __m256i factor = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
#pragma GCC unroll 10
    for (int k = 0; k < 10; ++k) {
      const auto* other = reinterpret_cast<const __m256i*>(from + 32 * k);
      const __m256i pairs = _mm256_maddubs_epi16(factor, _mm256_loadu_si256(other));
      sum[k] = _mm256_add_epi32(sum[k], _mm256_madd_epi16(pairs, one));
    }
  }
  __m256i all = sum[0];
  for (int k = 1; k < 10; ++k) all = _mm256_add_epi32(all, sum[k]);
  return _mm256_extract_epi32(all, 0);
}
#endif

/// Whether the functions below do anything but throw.
inline bool limits_are_known() {
  return best_isa() >= Isa::kAvx2;
}

[[noreturn]] inline void no_limit() {
  throw std::runtime_error("no limit is measured on this machine");
}

/// Reads a buffer; its size is a multiple of 256.
inline double read_all([[maybe_unused]] const char* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__x86_64__)
  if (best_isa() == Isa::kAvx512) return read_avx512(data, bytes);
  if (best_isa() == Isa::kAvx2) return read_avx2(data, bytes);
#endif
  no_limit();
}

/// Does kMultiplyOperations, two per fused multiply-add, in registers.
inline constexpr double kMultiplyOperations = 2e8;
inline double multiply_all() {
#if defined(__x86_64__)
  if (best_isa() == Isa::kAvx512) return multiply_avx512();
  if (best_isa() == Isa::kAvx2) return multiply_avx2();
#endif
  no_limit();
}

/// Does kMultiply8Operations, two per product of 8-bit integers that is added up, from the
/// first-level cache.
inline constexpr double kMultiply8Operations = 1.6e9;
inline double multiply8_all() {
#if defined(__x86_64__)
  alignas(64) static const char cached[8192] = {1, 2, 3};
  if (__builtin_cpu_supports("avx512vnni")) return multiply8_vnni(cached);
  if (best_isa() >= Isa::kAvx2) return multiply8_avx2(cached);
#endif
  no_limit();
}

}  // namespace kvreplay::kernels
