#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/half.hpp"

namespace kvreplay::kernels {

/// FP8 E4M3, the finite variant ("fn"): sign, 4 bits of exponent (bias 7), 3 of mantissa; no
/// infinity; 0x7f and 0xff are NaN. (Micikevicius et al., FP8 Formats for Deep Learning, table 1)
inline constexpr float kFp8Maximum = 448;

/// Rounds to nearest, ties to even; magnitudes above 448 saturate.
[[nodiscard]] constexpr std::uint8_t to_fp8(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
  if (magnitude >= std::bit_cast<std::uint32_t>(kFp8Maximum))
    return static_cast<std::uint8_t>(sign | 0x7eu);
  if (magnitude < std::bit_cast<std::uint32_t>(0x1p-6f)) {
    // Subnormal, a multiple of 2^-9: adding 2^14 leaves the rounded multiple in the lowest bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<std::uint8_t>(
        sign | (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0x1p14f)));
  }
  const std::uint32_t odd = (magnitude >> 20) & 1u;
  const std::uint32_t rebias = (127u - 7u) << 23;
  return static_cast<std::uint8_t>(sign | ((magnitude - rebias + 0x7ffffu + odd) >> 20));
}

/// Exact.
[[nodiscard]] constexpr float fp8_to_float(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8) {
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + ((127u - 7u) << 23)));
}

/// The scale that maps the row's largest magnitude to 448; 1 for a row of zeros.
[[nodiscard]] float fp8_scale(const Half* row, std::int64_t n);
/// to[i] = fp8(from[i] / scale) * scale, in half precision. In place is allowed.
void fp8_round_trip(const Half* from, std::int64_t n, float scale, Half* to);

/// What a group of integer codes is decoded with: x ~ code * scale + minimum. Both are
/// half-precision numbers, as stored.
struct IntScale {
  float scale = 0;
  float minimum = 0;
};

/// Asymmetric quantisation to `bits` (2 to 8) of n elements, `stride` apart: scale = (max - min) /
/// (2^bits - 1). (KIVI, section 2) Elements that are all equal get scale 0 and are decoded
/// unchanged.
[[nodiscard]] IntScale int_scale(const Half* from, std::int64_t n, std::int64_t stride, int bits);

/// round((x - minimum) / scale), ties to even, clamped to [0, 2^bits - 1].
[[nodiscard]] constexpr std::uint8_t int_code(float x, IntScale scale, int bits) {
  if (scale.scale == 0) return 0;
  const float top = static_cast<float>((1 << bits) - 1);
  const float level = std::min(std::max((x - scale.minimum) / scale.scale, 0.0f), top);
  // Adding 2^23 leaves the rounded integer in the mantissa.
  return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(level + 0x1p23f) & 0xffu);
}

/// The decoded value; within the half-precision range even where scale was rounded up.
[[nodiscard]] constexpr float int_value(std::uint8_t code, IntScale scale) {
  const float value = static_cast<float>(code) * scale.scale + scale.minimum;
  return std::min(std::max(value, -65504.0f), 65504.0f);
}

/// Encodes n elements, `stride` apart, as one group and decodes them to the same positions of `to`.
/// In place is allowed.
void int_round_trip(const Half* from, std::int64_t n, std::int64_t stride, int bits, Half* to);

}  // namespace kvreplay::kernels
