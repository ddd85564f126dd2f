#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "policies/kernels/integer_products.hpp"
#include "policies/kernels/kernels.hpp"
#include "policies/kernels/table.hpp"
#include "tests/policies/kernels/support.hpp"

namespace kvreplay::kernels {
namespace {

std::vector<BFloat> to_bfloats(const std::vector<float>& values) {
  std::vector<BFloat> result;
  for (const float value : values) {
    result.push_back({static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16)});
  }
  return result;
}

struct Shape {
  std::int64_t rows;
  std::int64_t depth;
  std::int64_t panels;
};

/// The specified result: one chain of fused multiply-adds per product.
std::vector<float> reference(const Shape& shape, const std::vector<float>& rows,
                             const std::vector<float>& panels) {
  std::vector<float> products(at(shape.rows * shape.panels * 16));
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t n = 0; n < shape.panels * 16; ++n) {
      float sum = 0;
      for (std::int64_t k = 0; k < shape.depth; ++k) {
        sum = std::fma(rows[at(r * shape.depth + k)],
                       panels[at((n / 16 * shape.depth + k) * 16 + n % 16)], sum);
      }
      products[at(r * shape.panels * 16 + n)] = sum;
    }
  }
  return products;
}

class Matrix : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > best_isa()) GTEST_SKIP() << "this machine has no " << isa_name(GetParam());
    use_isa(GetParam());
  }
  void TearDown() override { use_isa(best_isa()); }
};

TEST_P(Matrix, ProductsAreTheReferenceBitForBit) {
  // Around the tiles of every instruction set; beyond a block of 1,024 inputs.
  for (const Shape shape :
       {Shape{1, 1, 1}, Shape{1, 48, 5}, Shape{3, 17, 2}, Shape{7, 64, 3}, Shape{8, 33, 4},
        Shape{13, 64, 1}, Shape{16, 100, 2}, Shape{19, 1030, 3}, Shape{2, 2049, 5}}) {
    SCOPED_TRACE(testing::Message() << shape.rows << " " << shape.depth << " " << shape.panels);
    const std::vector<float> rows = random_floats(shape.rows * shape.depth, 1);
    const std::vector<float> weights = random_floats(shape.panels * shape.depth * 16, 2);
    const std::vector<BFloat> halves = to_bfloats(weights);
    std::vector<float> rounded;
    for (const BFloat half : halves) rounded.push_back(bfloat16_to_float(half.bits));

    std::vector<float> products(at(shape.rows * shape.panels * 16), NAN);
    const PanelProduct product{.rows = rows.data(),
                               .row_count = shape.rows,
                               .row_stride = shape.depth,
                               .depth = shape.depth,
                               .panel_count = shape.panels,
                               .panel_stride = shape.depth * 16,
                               .products = products.data(),
                               .product_stride = shape.panels * 16};
    multiply(product, weights.data());
    EXPECT_EQ(products, reference(shape, rows, weights));
    multiply(product, halves.data());
    EXPECT_EQ(products, reference(shape, rows, rounded));
  }
}

TEST_P(Matrix, StridesLeaveWhatLiesBetween) {
  constexpr Shape kShape{9, 20, 2};
  const std::vector<float> rows = random_floats(kShape.rows * 25, 3);
  const std::vector<float> weights = random_floats(kShape.panels * 400, 4);
  std::vector<float> products(at(kShape.rows * 40), 7.0F);
  multiply({.rows = rows.data(),
            .row_count = kShape.rows,
            .row_stride = 25,
            .depth = kShape.depth,
            .panel_count = kShape.panels,
            .panel_stride = 400,
            .products = products.data(),
            .product_stride = 40},
           weights.data());
  for (std::int64_t r = 0; r < kShape.rows; ++r) {
    for (std::int64_t n = 0; n < 40; ++n) {
      float expected = n < 32 ? 0.0F : 7.0F;
      for (std::int64_t k = 0; n < 32 && k < kShape.depth; ++k) {
        expected =
            std::fma(rows[at(r * 25 + k)], weights[at(n / 16 * 400 + k * 16 + n % 16)], expected);
      }
      EXPECT_EQ(products[at(r * 40 + n)], expected) << r << " " << n;
    }
  }
}

/// Bytes and scales of a matrix of integers, and the weights in the order of the specification.
struct IntegerMatrix {
  IntegerMatrix(const Shape& shape, int bits) : groups((shape.depth + kGroup - 1) / kGroup) {
    const std::vector<float> draw = random_floats(shape.panels * groups * kGroup * 16, 7);
    const std::vector<float> draw_scales = random_floats(shape.panels * groups * 16, 8);
    bytes.resize(at(shape.panels * groups * 64 * bits));
    weights.resize(draw.size());
    for (const float scale : draw_scales) scales.push_back(kvreplay::to_half(scale));
    for (std::size_t i = 0; i < draw.size(); ++i) {
      const auto n = static_cast<std::int64_t>(i);
      const std::int64_t k = n % kGroup;
      const std::int64_t lane = n / kGroup % 16;
      const std::int64_t group = n / kGroup / 16;
      // The extremes come first, -128 among them, which no importer writes.
      const int limit = bits == 8 ? 128 : 8;
      const int weight = n < 64 * kGroup
                             ? (n % 3 == 0 ? -limit : limit - 1)
                             : std::clamp(static_cast<int>(draw[i] * static_cast<float>(limit) / 3),
                                          -limit, limit - 1);
      weights[i] = weight;
      const std::int64_t place = bits == 8 ? k : k % 16;
      std::uint8_t& byte = bytes[at(group * 64 * bits + place / 4 * 64 + 4 * lane + place % 4)];
      byte = static_cast<std::uint8_t>(bits == 8 ? weight
                                       : k < 16  ? byte | (weight + 8)
                                                 : byte | (weight + 8) << 4);
    }
  }
  std::int64_t groups;
  std::vector<std::uint8_t> bytes;
  std::vector<Half> scales;
  std::vector<int> weights;  ///< [panels, groups, 16, 32]
};

/// Rows quantised one by one.
struct IntegerRowsOf {
  IntegerRowsOf(const Shape& shape, std::int64_t groups, const std::vector<float>& rows)
      : values(at(shape.rows * groups * kGroup), 99),
        scales(at(shape.rows * groups)),
        sums(at(shape.rows * groups)) {
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      quantise_row(rows.data() + r * shape.depth, shape.depth, values.data() + r * groups * kGroup,
                   scales.data() + r * groups, sums.data() + r * groups);
    }
  }
  std::vector<std::int8_t> values;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;
};

TEST_P(Matrix, IntegerProductsAreTheReferenceBitForBit) {
  for (const int bits : {8, 4}) {
    for (const Shape shape : {Shape{1, 32, 1}, Shape{1, 96, 5}, Shape{3, 48, 2}, Shape{8, 64, 3},
                              Shape{13, 144, 4}, Shape{2, 2049, 5}}) {
      SCOPED_TRACE(testing::Message()
                   << bits << ": " << shape.rows << " " << shape.depth << " " << shape.panels);
      const IntegerMatrix matrix(shape, bits);
      const std::int64_t groups = matrix.groups;
      std::vector<float> rows = random_floats(shape.rows * shape.depth, 1);
      // A group whose values are all extremes, so that sums are as large as they get.
      for (std::size_t i = 0; i < 32; ++i) rows[i] = i % 3 == 0 ? -5.0F : 5.0F;
      const IntegerRowsOf from(shape, groups, rows);
      const std::int64_t stride = shape.panels * 16 + 3;
      std::vector<float> products(at(shape.rows * stride), 7.0F);
      multiply({.rows = {from.values.data(), from.scales.data(), from.sums.data()},
                .row_count = shape.rows,
                .groups = groups,
                .panel_count = shape.panels,
                .products = products.data(),
                .product_stride = stride},
               {matrix.bytes.data(), matrix.scales.data()}, bits);
      for (std::int64_t r = 0; r < shape.rows; ++r) {
        for (std::int64_t n = 0; n < stride; ++n) {
          float expected = n < shape.panels * 16 ? 0.0F : 7.0F;
          for (std::int64_t g = 0; n < shape.panels * 16 && g < groups; ++g) {
            const std::int64_t group = n / 16 * groups + g;
            int dot = 0;
            for (std::int64_t k = 0; k < kGroup; ++k) {
              dot += matrix.weights[at((group * 16 + n % 16) * kGroup + k)] *
                     from.values[at((r * groups + g) * kGroup + k)];
            }
            expected = std::fma(
                static_cast<float>(dot),
                to_float(matrix.scales[at(group * 16 + n % 16)]) * from.scales[at(r * groups + g)],
                expected);
          }
          ASSERT_EQ(products[at(r * stride + n)], expected) << r << " " << n;
        }
      }
    }
  }
}

TEST_P(Matrix, RowsRoundToTheNearestInteger) {
  std::vector<float> row = random_floats(80, 9);
  row[3] = 8.0F;                                          // 127
  row[4] = -8.0F;                                         // -127
  for (std::size_t i = 32; i < 64; ++i) row[i] = 1e-31F;  // as good as 0
  row[64] = std::numeric_limits<float>::quiet_NaN();
  const IntegerRowsOf from({1, 80, 0}, 3, row);
  EXPECT_EQ(from.values[3], 127);
  EXPECT_EQ(from.values[4], -127);
  EXPECT_EQ(from.scales[0], 8.0F / 127);
  int sum = 0;
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(from.values[i], std::nearbyint(row[i] * (127.0F / 8.0F))) << i;
    sum += from.values[i];
  }
  EXPECT_EQ(from.sums[0], sum);
  EXPECT_EQ(from.scales[1], 0);
  EXPECT_EQ(from.scales[2], std::numeric_limits<float>::infinity());
  EXPECT_THAT(std::span(from.values).subspan(32), testing::Each(0));
}

TEST_P(Matrix, SiluIsTheDefinition) {
  std::vector<float> gate{-1000, -90, -87.5F, -20, -1, -1e-20F, 0, 1e-20F, 0.5F, 1, 3, 20, 88, 500};
  for (const float more : random_floats(23, 5)) gate.push_back(8 * more);
  const std::vector<float> up = random_floats(std::ssize(gate), 6);
  std::vector<float> result = gate;
  silu_multiply(result.data(), up.data(), std::ssize(result));
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i];
    const double expected = x / (1 + std::exp(-x)) * static_cast<double>(up[i]);
    EXPECT_NEAR(result[i], expected, 1e-6 * std::abs(expected) + 1e-35) << x;
  }
  std::vector<float> scalar = gate;
  use_isa(Isa::kScalar);
  silu_multiply(scalar.data(), up.data(), std::ssize(scalar));
  EXPECT_EQ(result, scalar);
}

TEST_P(Matrix, GeluIsTheDefinition) {
  std::vector<float> gate{-1e15F, -1000, -20, -7, -1, -1e-20F, 0,
                          1e-20F, 0.5F,  1,   3,  20, 88,      1e15F};
  for (const float more : random_floats(23, 5)) gate.push_back(8 * more);
  const std::vector<float> up = random_floats(std::ssize(gate), 6);
  std::vector<float> result = gate;
  gelu_multiply(result.data(), up.data(), std::ssize(result));
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i];
    // (1 + tanh(z)) / 2, without the cancellation at a negative z.
    const double z = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    const double expected = x / (1 + std::exp(-2 * z)) * static_cast<double>(up[i]);
    EXPECT_NEAR(result[i], expected, 1e-5 * std::abs(expected) + 1e-20) << x;
  }
  std::vector<float> scalar = gate;
  use_isa(Isa::kScalar);
  gelu_multiply(scalar.data(), up.data(), std::ssize(scalar));
  EXPECT_EQ(result, scalar);
}

INSTANTIATE_TEST_SUITE_P(Isa, Matrix, testing::Values(Isa::kScalar, Isa::kAvx2, Isa::kAvx512),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

}  // namespace
}  // namespace kvreplay::kernels
