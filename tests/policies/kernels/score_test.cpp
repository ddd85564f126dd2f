#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "tests/policies/kernels/support.hpp"

namespace kvreplay::kernels {
namespace {

/// The order of summation that kernels.hpp promises, written out: 16 lanes, zeros after the end, a
/// tree.
float specified_sum(std::int64_t dim, const std::function<float(std::int64_t, float)>& accumulate) {
  std::array<float, 16> lane{};
  for (std::int64_t d = 0; d < (dim + 15) / 16 * 16; ++d) {
    float& sum = lane[at(d % 16)];
    sum = d < dim ? accumulate(d, sum) : std::fma(0.0f, 0.0f, sum);
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

float specified_dot(const float* a, const float* b, std::int64_t dim) {
  return specified_sum(dim, [=](std::int64_t d, float sum) { return std::fma(a[d], b[d], sum); });
}

/// Error bound of a dot product in single precision: a few roundings of each of its terms.
double tolerance(const float* a, const float* b, std::int64_t dim) {
  double magnitude = 0.0;
  for (std::int64_t d = 0; d < dim; ++d) magnitude += std::abs(static_cast<double>(a[d]) * b[d]);
  return magnitude * 16 * 0x1p-24;
}

std::vector<float> to_floats(const std::vector<Half>& halves) {
  std::vector<float> floats;
  for (const Half half : halves) floats.push_back(kvreplay::to_float(half));
  return floats;
}

constexpr float kUntouched = -12345.0f;

TEST(Dot, FollowsTheSpecifiedOrderAtEverySize) {
  for (const std::int64_t dim : kAwkwardSizes) {
    const std::vector<float> a = random_floats(dim, 1);
    const std::vector<float> b = random_floats(dim, 2);
    double exact = 0.0;
    for (std::int64_t d = 0; d < dim; ++d) exact += static_cast<double>(a[at(d)]) * b[at(d)];
    for (const Isa isa : available_isas()) {
      const WithIsa with(isa);
      const float result = dot(a.data(), b.data(), dim);
      EXPECT_NEAR(result, exact, tolerance(a.data(), b.data(), dim));
      EXPECT_EQ(std::bit_cast<std::uint32_t>(result),
                std::bit_cast<std::uint32_t>(specified_dot(a.data(), b.data(), dim)))
          << isa_name(isa) << " dim " << dim;
    }
  }
}

TEST(Dot, OfNothingIsZero) {
  for (const Isa isa : available_isas()) {
    const WithIsa with(isa);
    EXPECT_EQ(dot(nullptr, nullptr, 0), 0.0f);
  }
}

TEST(Dot, NegativeZerosFromUnderflowAreTheSameEverywhere) {
  // Each product is a negative number too small for a float: it rounds to -0.
  for (const std::int64_t dim : kAwkwardSizes) {
    const std::vector<float> a(at(dim), 1e-30f);
    const std::vector<float> b(at(dim), -1e-30f);
    const auto expected = std::bit_cast<std::uint32_t>(specified_dot(a.data(), b.data(), dim));
    for (const Isa isa : available_isas()) {
      const WithIsa with(isa);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(dot(a.data(), b.data(), dim)), expected)
          << isa_name(isa) << " dim " << dim;
    }
  }
}

struct Workload {
  std::int64_t queries;
  std::int64_t rows;
  std::int64_t dim;
};

std::vector<Workload> shapes() {
  std::vector<Workload> shapes;
  for (const std::int64_t dim : kAwkwardSizes) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 15, 16, 17, 31, 32, 33, 66}) {
      for (const std::int64_t queries : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16}) {
        shapes.push_back({queries, rows, dim});
      }
    }
  }
  return shapes;
}

TEST(Score, EveryElementIsTheSpecifiedDotProduct) {
  for (const Workload& shape : shapes()) {
    const std::int64_t queries = shape.queries;
    const std::int64_t rows = shape.rows;
    const std::int64_t dim = shape.dim;
    const std::int64_t stride = rows + 3;
    const std::vector<float> query = random_floats(queries * dim, 3);
    const std::vector<Half> halves = random_halves(rows * dim, 4);
    const std::vector<float> floats = to_floats(halves);
    std::vector<float> expected(at(queries * stride), kUntouched);
    for (std::int64_t q = 0; q < queries; ++q) {
      for (std::int64_t n = 0; n < rows; ++n) {
        expected[at(q * stride + n)] =
            specified_dot(query.data() + q * dim, floats.data() + n * dim, dim);
      }
    }
    for (const Isa isa : available_isas()) {
      const WithIsa with(isa);
      std::vector<float> scores(expected.size(), kUntouched);
      score(query.data(), queries, halves.data(), rows, dim, scores.data(), stride);
      ASSERT_EQ(bits_of(scores), bits_of(expected))
          << isa_name(isa) << " half " << queries << " x " << rows << " x " << dim;
      std::fill(scores.begin(), scores.end(), kUntouched);
      score(query.data(), queries, floats.data(), rows, dim, scores.data(), stride);
      ASSERT_EQ(bits_of(scores), bits_of(expected))
          << isa_name(isa) << " float " << queries << " x " << rows << " x " << dim;
    }
  }
}

TEST(ScoreBounds, IsTheSumOfTheLargerProductsAndBoundsEveryRow) {
  for (const Workload& shape : shapes()) {
    const std::int64_t queries = shape.queries;
    const std::int64_t rows = shape.rows;
    const std::int64_t dim = shape.dim;
    const std::vector<float> query = random_floats(queries * dim, 5);
    const std::vector<float> one = random_floats(rows * dim, 6);
    const std::vector<float> other = random_floats(rows * dim, 7);
    std::vector<float> minima(one.size());
    std::vector<float> maxima(one.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      minima[i] = std::min(one[i], other[i]);
      maxima[i] = std::max(one[i], other[i]);
    }
    std::vector<float> expected(at(queries * rows));
    for (std::int64_t q = 0; q < queries; ++q) {
      for (std::int64_t n = 0; n < rows; ++n) {
        expected[at(q * rows + n)] = specified_sum(dim, [&](std::int64_t d, float sum) {
          const float element = query[at(q * dim + d)];
          const float low = minima[at(n * dim + d)];
          const float high = maxima[at(n * dim + d)];
          return std::fma(element, element * high > element * low ? high : low, sum);
        });
      }
    }
    for (const Isa isa : available_isas()) {
      const WithIsa with(isa);
      std::vector<float> bounds(expected.size());
      score_bounds(query.data(), queries, minima.data(), maxima.data(), rows, dim, bounds.data(),
                   rows);
      ASSERT_EQ(bits_of(bounds), bits_of(expected))
          << isa_name(isa) << " " << queries << " x " << rows << " x " << dim;
    }
    for (std::int64_t q = 0; q < queries; ++q) {
      for (std::int64_t n = 0; n < rows; ++n) {
        const float* row = one.data() + n * dim;
        const double slack = tolerance(query.data() + q * dim, row, dim);
        ASSERT_GE(expected[at(q * rows + n)] + slack,
                  specified_dot(query.data() + q * dim, row, dim));
      }
    }
  }
}

TEST(Convert, EveryHalfIsExact) {
  std::vector<Half> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<std::uint16_t>(i);
  for (const Isa isa : available_isas()) {
    const WithIsa with(isa);
    std::vector<float> floats(halves.size());
    to_float(halves.data(), floats.data(), 65536);
    std::vector<Half> back(halves.size());
    to_half(floats.data(), back.data(), 65536);
    for (std::size_t i = 0; i < halves.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]),
                std::bit_cast<std::uint32_t>(kvreplay::to_float(halves[i])))
          << isa_name(isa) << " half " << i;
      ASSERT_EQ(back[i], kvreplay::to_half(floats[i])) << isa_name(isa) << " half " << i;
      if (std::isnan(floats[i])) continue;
      ASSERT_EQ(back[i], halves[i]) << isa_name(isa) << " half " << i;
    }
  }
}

TEST(Convert, RoundsAsTheScalarFunctionDoes) {
  // Every half, the float midway to the next, and the floats beside that; and random bit patterns.
  std::vector<float> floats;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const float value = kvreplay::to_float(Half{static_cast<std::uint16_t>(i)});
    const float next = kvreplay::to_float(Half{static_cast<std::uint16_t>(i + 1)});
    const float middle = 0.5f * value + 0.5f * next;
    const float kInfinity = std::numeric_limits<float>::infinity();
    floats.insert(floats.end(), {value, middle, std::nextafter(middle, kInfinity),
                                 std::nextafter(middle, -kInfinity)});
  }
  Random random(8);
  for (int i = 0; i < 100000; ++i) {
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.next())));
  }
  for (const Isa isa : available_isas()) {
    const WithIsa with(isa);
    std::vector<Half> halves(floats.size());
    to_half(floats.data(), halves.data(), static_cast<std::int64_t>(floats.size()));
    for (std::size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(halves[i], kvreplay::to_half(floats[i])) << isa_name(isa) << " " << floats[i];
    }
  }
}

TEST(Convert, TouchesNothingBeyondTheEnd) {
  for (const std::int64_t n : kAwkwardSizes) {
    const std::vector<Half> halves = random_halves(n, 9);
    for (const Isa isa : available_isas()) {
      const WithIsa with(isa);
      std::vector<float> floats(at(n) + 1, kUntouched);
      to_float(halves.data(), floats.data(), n);
      EXPECT_EQ(floats.back(), kUntouched);
      std::vector<Half> back(at(n) + 1, Half{0x1234});
      to_half(floats.data(), back.data(), n);
      EXPECT_EQ(back.back(), Half{0x1234});
      back.pop_back();
      EXPECT_EQ(back, halves);
    }
  }
}

TEST(AllFinite, FindsOneValueAtEveryPlace) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t n : kAwkwardSizes) {
    std::vector<float> values = random_floats(n, 10);
    values[0] = std::numeric_limits<float>::max();
    values.push_back(kInfinity);  // beyond the end
    for (const Isa isa : available_isas()) {
      const WithIsa with(isa);
      EXPECT_TRUE(all_finite(values.data(), n)) << isa_name(isa) << " " << n;
      for (const float wrong : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        for (std::int64_t i = 0; i < n; ++i) {
          const float kept = std::exchange(values[at(i)], wrong);
          EXPECT_FALSE(all_finite(values.data(), n)) << isa_name(isa) << " " << n << " at " << i;
          values[at(i)] = kept;
        }
      }
    }
  }
  EXPECT_TRUE(all_finite(nullptr, 0));
}

TEST(Isa, OnlyWhatTheMachineHas) {
  EXPECT_EQ(current_isa(), best_isa());
  EXPECT_EQ(available_isas().front(), Isa::kScalar);
  EXPECT_EQ(available_isas().back(), best_isa());
  EXPECT_EQ(isa_name(Isa::kAvx512), "avx512");
  if (best_isa() == Isa::kAvx512) GTEST_SKIP() << "this machine has every instruction set";
  EXPECT_THROW(use_isa(Isa::kAvx512), std::invalid_argument);
}

}  // namespace
}  // namespace kvreplay::kernels
