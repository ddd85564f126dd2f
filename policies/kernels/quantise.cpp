#include "policies/kernels/quantise.hpp"

#include <vector>

namespace kvreplay::kernels {
namespace {

float round_to_half(float value) {
  return kvreplay::to_float(kvreplay::to_half(value));
}

/// Of each half, by its bits: what it comes back as without a scale.
std::vector<Half> fp8_of_every_half() {
  std::vector<Half> decoded(std::size_t{1} << 16);
  for (std::size_t bits = 0; bits < decoded.size(); ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    decoded[bits] = kvreplay::to_half(fp8_to_float(to_fp8(kvreplay::to_float(half))));
  }
  return decoded;
}

}  // namespace

float fp8_scale(const Half* row, std::int64_t n) {
  // Without their signs, halves order like their bits.
  std::uint16_t max = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    max = std::max(max, static_cast<std::uint16_t>(row[i].bits & 0x7fffu));
  }
  return max == 0 ? 1.0f : kvreplay::to_float(Half{max}) / kFp8Maximum;
}

void fp8_round_trip(const Half* from, std::int64_t n, float scale, Half* to) {
  if (scale == 1.0f) {
    static const std::vector<Half> decoded = fp8_of_every_half();
    for (std::int64_t i = 0; i < n; ++i) to[i] = decoded[from[i].bits];
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = kvreplay::to_half(fp8_to_float(to_fp8(kvreplay::to_float(from[i]) / scale)) * scale);
  }
}

IntScale int_scale(const Half* from, std::int64_t n, std::int64_t stride, int bits) {
  float minimum = kvreplay::to_float(from[0]);
  float maximum = minimum;
  for (std::int64_t i = 1; i < n; ++i) {
    const float x = kvreplay::to_float(from[i * stride]);
    minimum = std::min(minimum, x);
    maximum = std::max(maximum, x);
  }
  const float levels = static_cast<float>((1 << bits) - 1);
  return {round_to_half((maximum - minimum) / levels), minimum};
}

void int_round_trip(const Half* from, std::int64_t n, std::int64_t stride, int bits, Half* to) {
  const IntScale scale = int_scale(from, n, stride, bits);
  for (std::int64_t i = 0; i < n * stride; i += stride) {
    to[i] = kvreplay::to_half(int_value(int_code(kvreplay::to_float(from[i]), scale, bits), scale));
  }
}

}  // namespace kvreplay::kernels
