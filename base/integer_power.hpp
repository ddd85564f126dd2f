#pragma once

#include <cstdint>

namespace kvreplay {

/// By squaring, so that it has the same bits everywhere: the library's exponentials differ between
/// processors in the last bit.
[[nodiscard]] inline double integer_power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) result *= base;
  }
  return result;
}

}  // namespace kvreplay
