// By hand: the standard's float16_t is of C++23.

#pragma once

#include <bit>
#include <cstdint>

namespace kvreplay {

/// IEEE 754 binary16, as stored in traces. A storage type: kernels convert whole rows at once.
struct Half {
  std::uint16_t bits = 0;
  friend bool operator==(Half, Half) = default;
};

/// Exact. A signalling NaN becomes quiet, as in hardware.
[[nodiscard]] constexpr float to_float(Half half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (half.bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = half.bits & 0x3ffu;
  if (exponent == 0x1f) {
    const std::uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

/// Rounds to nearest, ties to even; magnitudes of 65520 and above become infinity.
[[nodiscard]] constexpr Half to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return {static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
  }
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 leaves the half's mantissa, rounded to even, in the float's lowest
    // bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {
        static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u))};
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return {static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13))};
}

/// bfloat16 bits to float. Exact.
[[nodiscard]] constexpr float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds to nearest, ties to even; a magnitude above the largest becomes infinity, NaN stays NaN.
[[nodiscard]] constexpr std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  const std::uint32_t odd = (bits >> 16) & 1u;
  return static_cast<std::uint16_t>((bits + 0x7fffu + odd) >> 16);
}

/// A view of half-precision rows, [heads, tokens, dim], in which each row and each head's rows are
/// contiguous. It owns nothing: the trace's mapping or a buffer must outlive it.
struct HalfTensor {
  const Half* data = nullptr;
  std::int64_t heads = 0;
  std::int64_t tokens = 0;
  std::int64_t dim = 0;
  std::int64_t head_stride = 0;  ///< elements from one head's first row to the next head's

  [[nodiscard]] const Half* head(std::int64_t h) const { return data + h * head_stride; }
  [[nodiscard]] const Half* row(std::int64_t h, std::int64_t t) const { return head(h) + t * dim; }
  /// The same rows up to token `end`: hides the future from a policy in replay.
  [[nodiscard]] HalfTensor first_tokens(std::int64_t end) const {
    return {data, heads, end, dim, head_stride};
  }
  [[nodiscard]] HalfTensor select_heads(std::int64_t begin, std::int64_t count) const {
    return {head(begin), count, tokens, dim, head_stride};
  }
};

}  // namespace kvreplay
