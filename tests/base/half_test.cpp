#include "base/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.hpp"

namespace kvreplay {
namespace {

/// The value by the definition of binary16.
double by_definition(std::uint16_t bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(HalfTest, EveryHalfToFloatIsExact) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const double expected = by_definition(half.bits);
    const double found = to_float(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << bits;
    } else {
      EXPECT_EQ(found, expected) << bits;
      EXPECT_EQ(std::signbit(found), std::signbit(expected)) << bits;
    }
  }
}

TEST(HalfTest, EveryHalfRoundTrips) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const Half again = to_half(to_float(half));
    if (std::isnan(by_definition(half.bits))) {
      EXPECT_TRUE(std::isnan(to_float(again))) << bits;
      EXPECT_EQ(again.bits & 0x8000u, bits & 0x8000u) << bits;
    } else {
      EXPECT_EQ(again.bits, bits);
    }
  }
}

/// Between each two neighbours: the midpoint goes to the even one, anything beside it to the
/// nearer.
TEST(HalfTest, RoundsToNearestTiesToEven) {
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const auto next = static_cast<std::uint16_t>(bits + 1);
    const float middle = static_cast<float>((by_definition(bits) + by_definition(next)) / 2);
    const std::uint16_t even = (bits & 1) == 0 ? bits : next;
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float sign : {1.0F, -1.0F}) {
      const auto sign_bit = static_cast<std::uint16_t>(sign < 0 ? 0x8000 : 0);
      ASSERT_EQ(to_half(sign * middle).bits, even | sign_bit) << bits;
      ASSERT_EQ(to_half(sign * std::nextafter(middle, 0.0F)).bits, bits | sign_bit) << bits;
      ASSERT_EQ(to_half(sign * std::nextafter(middle, infinity)).bits, next | sign_bit) << bits;
    }
  }
}

TEST(HalfTest, Extremes) {
  EXPECT_EQ(to_half(65504.0F).bits, 0x7bff);
  EXPECT_EQ(to_half(std::nextafter(65520.0F, 0.0F)).bits, 0x7bff);
  EXPECT_EQ(to_half(65520.0F).bits, 0x7c00);
  EXPECT_EQ(to_half(-65520.0F).bits, 0xfc00);
  EXPECT_EQ(to_half(std::numeric_limits<float>::max()).bits, 0x7c00);
  EXPECT_EQ(to_half(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_TRUE(std::isnan(to_float(to_half(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(to_half(0x1p-25F).bits, 0);  // half the smallest: a tie, to even
  EXPECT_EQ(to_half(std::nextafter(0x1p-25F, 1.0F)).bits, 1);
  EXPECT_EQ(to_half(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(to_half(-0.0F).bits, 0x8000);
}

TEST(HalfTest, BrainFloatIsTheUpperHalfOfAFloat) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto bits = static_cast<std::uint16_t>(random.next());
    EXPECT_EQ(std::bit_cast<std::uint32_t>(bfloat16_to_float(bits)), std::uint32_t{bits} << 16);
  }
  EXPECT_EQ(bfloat16_to_float(0x3f80), 1.0F);
  EXPECT_EQ(bfloat16_to_float(0xc040), -3.0F);
}

TEST(HalfTensorTest, Views) {
  std::vector<Half> data(2 * 3 * 4);
  for (std::size_t i = 0; i < data.size(); ++i) data[i].bits = static_cast<std::uint16_t>(i);
  const HalfTensor tensor{data.data(), 2, 3, 4, 12};
  EXPECT_EQ(tensor.row(1, 2)->bits, 20);
  const HalfTensor past = tensor.first_tokens(2);
  EXPECT_EQ(past.tokens, 2);
  EXPECT_EQ(past.row(1, 1), tensor.row(1, 1));
  const HalfTensor second = tensor.select_heads(1, 1);
  EXPECT_EQ(second.heads, 1);
  EXPECT_EQ(second.row(0, 2), tensor.row(1, 2));
}

TEST(Bfloat16Test, RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bfloat16_to_float(static_cast<std::uint16_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(to_bfloat16(value), bits);
    }
  }
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f807fffu)), 0x3f80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x7f7fffffu)), 0x7f80);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(to_bfloat16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace kvreplay
