#pragma once

#include <cmath>

namespace kvreplay::kernels {

/// Natural logarithm of a finite x > 0, and exponential, to about one unit in the last place. The C
/// library chooses its variants by instruction set, and these differ in the last bits. Here only
/// correctly rounded operations are used, so the bits are the same on every machine.
[[nodiscard]] inline double ln(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // in [0.5, 1)
  if (mantissa < 0.70710678118654752) {
    mantissa *= 2;
    --exponent;
  }
  // ln m = 2 artanh(s), |s| <= 0.172: the terms fall by 0.0295 each.
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double series = 0;
  for (int odd = 25; odd >= 3; odd -= 2) series = (series + 1.0 / odd) * square;
  constexpr double kLn2 = 0.69314718055994531;
  return static_cast<double>(exponent) * kLn2 + 2 * (s + s * series);
}

/// Returns 0 below -745 and infinity above 709.8.
[[nodiscard]] inline double exp(double x) {
  if (x < -746) return 0;
  if (x > 710) return HUGE_VAL;
  constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits, so that its multiples are exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double power = std::floor(x * 1.4426950408889634 + 0.5);
  const double rest = (x - power * kLn2High) - power * kLn2Low;  // |rest| <= 0.347
  double series = 1;
  for (int i = 14; i >= 1; --i) series = 1 + series * rest / i;
  return std::ldexp(series, static_cast<int>(power));
}

}  // namespace kvreplay::kernels
