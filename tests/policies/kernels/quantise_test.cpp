#include "policies/kernels/quantise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.hpp"
#include "policies/kernels/elementary.hpp"

namespace kvreplay::kernels {
namespace {

double reference_fp8_value(int code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 7 - 3);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

bool is_nan_code(int code) {
  return (code & 0x7f) == 0x7f;
}

/// The nearest of all finite codes of the value's sign; of two equally near ones the even one.
int reference_fp8_code(double value) {
  const int sign = std::signbit(value) ? 0x80 : 0;
  int best = sign;
  for (int code = sign; code < sign + 0x7f; ++code) {
    const double distance = std::abs(reference_fp8_value(code) - value);
    const double min_distance = std::abs(reference_fp8_value(best) - value);
    if (distance < min_distance || (distance == min_distance && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(Fp8, DecodesEveryCode) {
  for (int code = 0; code < 256; ++code) {
    const float value = fp8_to_float(static_cast<std::uint8_t>(code));
    if (is_nan_code(code)) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(value, reference_fp8_value(code)) << code;
      EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
    }
  }
}

TEST(Fp8, EncodesEveryCodeAsItself) {
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(to_fp8(fp8_to_float(static_cast<std::uint8_t>(code))), code);
  }
}

TEST(Fp8, RoundsToTheNearestCodeAndTiesToEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const double low = reference_fp8_value(code);
    const double high = reference_fp8_value(code + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(middle, (low + high) / 2);
    for (const float value : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f)}) {
      EXPECT_EQ(to_fp8(value), reference_fp8_code(value)) << value;
      EXPECT_EQ(to_fp8(-value), reference_fp8_code(-value)) << -value;
    }
  }
}

TEST(Fp8, AgreesWithTheReferenceOnEveryHalf) {
  for (int bits = 0; bits < 0x7c00; ++bits) {
    const float value = kvreplay::to_float(Half{static_cast<std::uint16_t>(bits)});
    ASSERT_EQ(to_fp8(value), reference_fp8_code(value)) << value;
  }
}

TEST(Fp8, SaturatesAndKeepsNan) {
  EXPECT_EQ(to_fp8(1e30f), 0x7e);
  EXPECT_EQ(to_fp8(-std::numeric_limits<float>::infinity()), 0xfe);
  EXPECT_EQ(to_fp8(std::numeric_limits<float>::quiet_NaN()), 0x7f);
}

std::vector<Half> random_row(Random& random, std::int64_t n, double magnitude) {
  std::vector<Half> row;
  for (std::int64_t i = 0; i < n; ++i) {
    row.push_back(kvreplay::to_half(static_cast<float>((2 * random.uniform() - 1) * magnitude)));
  }
  return row;
}

TEST(Fp8, RoundTripErrorIsAtMostASixteenthOfTheElement) {
  Random random(1);
  for (const double magnitude : {1e-3, 1.0, 700.0, 65504.0}) {
    const std::vector<Half> row = random_row(random, 97, magnitude);
    const float scale = fp8_scale(row.data(), 97);
    std::vector<Half> decoded(row.size());
    fp8_round_trip(row.data(), 97, scale, decoded.data());
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double x = kvreplay::to_float(row[i]);
      // Half a step of 1/8 of the power of two below, or of the smallest subnormal; and the
      // rounding of the result to half precision.
      const double bound = std::max(std::abs(x) / 16, scale * 0x1p-10) * 1.01 + 6e-8;
      EXPECT_LE(std::abs(kvreplay::to_float(decoded[i]) - x), bound) << x;
    }
  }
}

TEST(Fp8, WithoutAScaleEveryHalfIsAsDefined) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    Half decoded;
    fp8_round_trip(&half, 1, 1.0f, &decoded);
    ASSERT_EQ(decoded, kvreplay::to_half(fp8_to_float(to_fp8(kvreplay::to_float(half))))) << bits;
  }
}

TEST(Fp8, TheLargestElementComesBack) {
  Random random(2);
  std::vector<Half> row = random_row(random, 64, 3.0);
  row[17] = kvreplay::to_half(-11.5f);
  std::vector<Half> decoded(row.size());
  fp8_round_trip(row.data(), 64, fp8_scale(row.data(), 64), decoded.data());
  EXPECT_EQ(decoded[17], row[17]);
}

TEST(Fp8, ZerosHaveScaleOne) {
  const std::vector<Half> zeros(5, Half{0x8000});
  EXPECT_EQ(fp8_scale(zeros.data(), 5), 1.0f);
}

TEST(Int, FollowsTheFormula) {
  Random random(3);
  for (const int bits : {2, 3, 4, 8}) {
    for (const std::int64_t n : {1, 2, 7, 32, 33}) {
      const std::vector<Half> row = random_row(random, n, 5.0);
      double minimum = kvreplay::to_float(row[0]);
      double maximum = minimum;
      for (const Half x : row) {
        minimum = std::min<double>(minimum, kvreplay::to_float(x));
        maximum = std::max<double>(maximum, kvreplay::to_float(x));
      }
      const int top = (1 << bits) - 1;
      const float step = kvreplay::to_float(
          kvreplay::to_half(static_cast<float>(maximum - minimum) / static_cast<float>(top)));
      std::vector<Half> decoded(row.size());
      int_round_trip(row.data(), n, 1, bits, decoded.data());
      for (std::size_t i = 0; i < row.size(); ++i) {
        const float x = kvreplay::to_float(row[i]);
        float expected = static_cast<float>(minimum);
        if (step > 0) {
          const float level = std::nearbyint((x - static_cast<float>(minimum)) / step);
          expected += std::clamp(level, 0.0f, static_cast<float>(top)) * step;
        }
        EXPECT_EQ(decoded[i], kvreplay::to_half(expected))
            << bits << " bits, element " << i << " of " << n;
      }
    }
  }
}

TEST(Int, ErrorIsAtMostHalfAStep) {
  Random random(4);
  for (const int bits : {2, 4, 8}) {
    const std::vector<Half> row = random_row(random, 64, 20.0);
    const IntScale scale = int_scale(row.data(), 64, 1, bits);
    for (const Half half : row) {
      const float x = kvreplay::to_float(half);
      // The scale's own rounding moves the top level by at most (2^bits - 1) 2^-11 steps.
      const double slack = scale.scale * (0.5 + (1 << bits) * 0x1p-11 + 1e-3);
      EXPECT_LE(std::abs(int_value(int_code(x, scale, bits), scale) - x), slack);
    }
  }
}

TEST(Int, EqualElementsComeBackExactly) {
  const std::vector<Half> row(9, kvreplay::to_half(-3.25f));
  std::vector<Half> decoded(9);
  int_round_trip(row.data(), 9, 1, 2, decoded.data());
  EXPECT_EQ(decoded, row);
}

TEST(Int, TheWidestRangeStaysFinite) {
  const std::vector<Half> row{kvreplay::to_half(-65504.0f), kvreplay::to_half(65504.0f)};
  for (const int bits : {2, 4, 8}) {
    std::vector<Half> decoded(2);
    int_round_trip(row.data(), 2, 1, bits, decoded.data());
    EXPECT_EQ(decoded[0], row[0]);
    EXPECT_NEAR(kvreplay::to_float(decoded[1]), 65504, 64);
  }
}

TEST(Int, StridedGroupsLeaveTheirNeighboursAlone) {
  Random random(5);
  constexpr std::int64_t kTokens = 8;
  constexpr std::int64_t kDim = 3;
  const std::vector<Half> rows = random_row(random, kTokens * kDim, 2.0);
  std::vector<Half> decoded = rows;
  int_round_trip(decoded.data() + 1, kTokens, kDim, 2, decoded.data() + 1);
  std::vector<Half> channel;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    channel.push_back(rows[static_cast<std::size_t>(t * kDim + 1)]);
  }
  std::vector<Half> expected(kTokens);
  int_round_trip(channel.data(), kTokens, 1, 2, expected.data());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(decoded[i], i % kDim == 1 ? expected[i / kDim] : rows[i]);
  }
}

TEST(Elementary, LogarithmAndExponentialAreAccurate) {
  Random random(6);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::exp(1400 * (random.uniform() - 0.5));
    EXPECT_NEAR(ln(x), std::log(x), 4e-16 * (1 + std::abs(std::log(x)))) << x;
    const double y = 1400 * (random.uniform() - 0.5);
    EXPECT_NEAR(kernels::exp(y) / std::exp(y), 1, 5e-16) << y;
  }
  EXPECT_EQ(ln(1.0), 0.0);
  EXPECT_EQ(kernels::exp(0.0), 1.0);
  EXPECT_EQ(kernels::exp(-800.0), 0.0);
}

}  // namespace
}  // namespace kvreplay::kernels
