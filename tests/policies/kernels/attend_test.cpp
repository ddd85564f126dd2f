#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/policies/kernels/support.hpp"

namespace kvreplay::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Softmax {
  std::vector<double> weights;
  double log_sum;
};

Softmax exact_softmax(const std::vector<float>& values, double scale) {
  double max = -std::numeric_limits<double>::infinity();
  for (const float value : values) max = std::max(max, value * scale);
  Softmax result{{}, 0.0};
  double sum = 0.0;
  for (const float value : values) {
    result.weights.push_back(std::exp(value * scale - max));
    sum += result.weights.back();
  }
  for (double& weight : result.weights) weight /= sum;
  result.log_sum = max + std::log(sum);
  return result;
}

/// Softmax on every instruction set: near the exact one, and the same bits.
void expect_softmax(const std::vector<float>& values, float scale) {
  const Softmax exact = exact_softmax(values, static_cast<double>(scale));
  std::vector<float> first;
  float first_log_sum = 0.0f;
  for (const Isa isa : available_isas()) {
    const WithIsa with(isa);
    std::vector<float> weights = values;
    weights.push_back(42.0f);
    const auto n = static_cast<std::int64_t>(values.size());
    const float log_sum = softmax(weights.data(), n, scale);
    ASSERT_EQ(weights.back(), 42.0f);
    weights.pop_back();
    double total = 0.0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      // A logit x, the largest one and their difference each carry a rounding of up to |x| * 2^-24,
      // which the exponential turns into a relative error.
      const double logit = std::abs(static_cast<double>(values[i]) * static_cast<double>(scale));
      const double relative =
          std::isinf(logit) ? 0.0 : (logit + std::abs(exact.log_sum) + 16.0) * 0x1p-23;
      ASSERT_NEAR(weights[i], exact.weights[i], exact.weights[i] * relative + 2e-38) << i;
      total += static_cast<double>(weights[i]);
    }
    EXPECT_NEAR(total, 1.0, 1e-5);
    EXPECT_NEAR(log_sum, exact.log_sum, 1e-5 + std::abs(exact.log_sum) * 1e-6);
    if (isa == Isa::kScalar) {
      first = weights;
      first_log_sum = log_sum;
    }
    ASSERT_EQ(bits_of(weights), bits_of(first)) << isa_name(isa) << " n " << n;
    ASSERT_EQ(log_sum, first_log_sum);
    std::vector<float> apart(values.size());
    ASSERT_EQ(softmax(values.data(), apart.data(), n, scale), log_sum);
    ASSERT_EQ(bits_of(apart), bits_of(weights));
  }
}

TEST(Softmax, IsExactEnoughAtEverySize) {
  for (const std::int64_t n : kAwkwardSizes) {
    expect_softmax(random_floats(n, 11), 1.0f);
    expect_softmax(random_floats(n, 12), 0.088388f);
    expect_softmax(random_floats(n, 13), 10.0f);
  }
  expect_softmax(random_floats(10007, 14), 1.0f);
}

TEST(Softmax, ExponentialIsWithinTwoUnitsInTheLastPlace) {
  // With a 0 in front the others are exp(x) over a sum that the test computes from the weights.
  std::vector<float> values{0.0f};
  for (float x = 0.0f; x > -87.0f; x -= 0.00737f) values.push_back(x);
  std::vector<float> weights = values;
  (void)softmax(weights.data(), static_cast<std::int64_t>(weights.size()), 1.0f);
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double ratio = static_cast<double>(weights[i]) / static_cast<double>(weights[0]);
    const double exact = std::exp(static_cast<double>(values[i]));
    if (exact < 1e-32) continue;  // the weight may be subnormal
    // Two for the exponential and one each for the two products with the inverse of the sum.
    EXPECT_NEAR(ratio / exact, 1.0, 4.0 * 0x1p-24 * 2.0) << values[i];
  }
}

TEST(Softmax, OneValueWeighsOne) {
  for (const float value : {0.0f, -3.5f, 1e30f, -1e30f}) {
    std::vector<float> weights{value};
    EXPECT_EQ(softmax(weights.data(), 1, 1.0f), value);
    EXPECT_EQ(weights[0], 1.0f);
  }
}

TEST(Softmax, LargeSmallAndMaskedValues) {
  expect_softmax({1000.0f, 999.0f, -1000.0f}, 1.0f);
  expect_softmax({-1000.0f, -1001.0f, -1002.5f}, 1.0f);
  expect_softmax({65504.0f, 65504.0f, 0.0f, -65504.0f}, 1.0f);
  expect_softmax({0.0f, -86.9f, -87.1f, -88.0f, -104.0f, -1e30f}, 1.0f);
  expect_softmax({1.0f, -kInfinity, 2.0f, -kInfinity}, 0.5f);
  expect_softmax(std::vector<float>(33, -0.0f), 1.0f);
  std::vector<float> masked = random_floats(100, 15);
  for (std::size_t i = 0; i < masked.size(); i += 2) masked[i] = -kInfinity;
  expect_softmax(masked, 3.0f);
}

TEST(Softmax, MaskedAndVanishingValuesWeighExactlyZero) {
  for (const Isa isa : available_isas()) {
    const WithIsa with(isa);
    std::vector<float> weights{0.0f, -kInfinity, -200.0f, -1e38f};
    (void)softmax(weights.data(), 4, 1.0f);
    EXPECT_EQ(bits_of(weights), bits_of({1.0f, 0.0f, 0.0f, 0.0f})) << isa_name(isa);
  }
}

/// Distinct tokens of `rows`, ascending, about every third.
std::vector<std::int32_t> some_tokens(std::int64_t rows) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t token = static_cast<std::int32_t>(rows) % 3; token < rows; token += 3) {
    tokens.push_back(token);
  }
  if (tokens.empty()) tokens.push_back(0);
  return tokens;
}

TEST(Attend, MatchesTheDefinitionOnEverySubset) {
  for (const std::int64_t dim : kAwkwardSizes) {
    for (const std::int64_t rows : {1, 2, 5, 16, 50, 200}) {
      const std::vector<float> query = random_floats(dim, 16);
      const std::vector<Half> keys = random_halves(rows * dim, 17);
      const std::vector<Half> values = random_halves(rows * dim, 18);
      const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
      const std::vector<std::int32_t> tokens = some_tokens(rows);

      std::vector<float> logits;
      for (const std::int32_t token : tokens) {
        double sum = 0.0;
        for (std::int64_t d = 0; d < dim; ++d) {
          sum += static_cast<double>(query[at(d)]) * kvreplay::to_float(keys[at(token * dim + d)]);
        }
        logits.push_back(static_cast<float>(sum));
      }
      const Softmax exact = exact_softmax(logits, static_cast<double>(scale));
      std::vector<double> exact_output(at(dim), 0.0);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        for (std::int64_t d = 0; d < dim; ++d) {
          exact_output[at(d)] +=
              exact.weights[i] * kvreplay::to_float(values[at(tokens[i] * dim + d)]);
        }
      }

      std::vector<float> first_weights;
      std::vector<float> first_output;
      float first_log_sum = 0.0f;
      for (const Isa isa : available_isas()) {
        const WithIsa with(isa);
        std::vector<float> weights(tokens.size());
        std::vector<float> output(at(dim));
        const float log_sum = attend(query.data(), keys.data(), values.data(), tokens, dim, scale,
                                     weights.data(), output.data());
        EXPECT_NEAR(log_sum, exact.log_sum, 1e-5);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          ASSERT_NEAR(weights[i], exact.weights[i], 1e-5 * exact.weights[i]);
        }
        for (std::int64_t d = 0; d < dim; ++d) {
          ASSERT_NEAR(output[at(d)], exact_output[at(d)], 1e-5);
        }
        if (isa == Isa::kScalar) {
          first_weights = weights;
          first_output = output;
          first_log_sum = log_sum;
        }
        ASSERT_EQ(bits_of(weights), bits_of(first_weights)) << isa_name(isa) << " dim " << dim;
        ASSERT_EQ(bits_of(output), bits_of(first_output)) << isa_name(isa) << " dim " << dim;
        ASSERT_EQ(log_sum, first_log_sum);
      }
    }
  }
}

TEST(Attend, LogitsAreTheScoresOfTheChosenRows) {
  const std::int64_t dim = 64;
  const std::vector<float> query = random_floats(dim, 19);
  const std::vector<Half> keys = random_halves(40 * dim, 20);
  std::vector<float> scores(40);
  score(query.data(), 1, keys.data(), 40, dim, scores.data(), 40);
  const std::vector<std::int32_t> tokens{39, 3, 3, 0, 17};
  std::vector<float> expected;
  for (const std::int32_t token : tokens) expected.push_back(scores[at(token)]);
  const float expected_log_sum = softmax(expected.data(), 5, 0.125f);
  std::vector<float> weights(5);
  std::vector<float> output(at(dim));
  EXPECT_EQ(attend(query.data(), keys.data(), keys.data(), tokens, dim, 0.125f, weights.data(),
                   output.data()),
            expected_log_sum);
  EXPECT_EQ(weights, expected);
}

TEST(Attend, QueriesTogetherHaveTheBitsOfEachAlone) {
  const std::int64_t dim = 80;
  const std::int64_t rows = 333;
  const std::vector<Half> keys = random_halves(rows * dim, 24);
  const std::vector<Half> values = random_halves(rows * dim, 25);
  std::vector<std::int32_t> consecutive(300);
  std::iota(consecutive.begin(), consecutive.end(), 21);
  std::vector<std::int32_t> with_a_gap = consecutive;
  for (std::size_t i = 150; i < with_a_gap.size(); ++i) with_a_gap[i] += 3;
  for (const std::vector<std::int32_t>& tokens : {consecutive, with_a_gap}) {
    const std::int64_t count = std::ssize(tokens);
    for (const std::int64_t queries : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13}) {
      const std::vector<float> query = random_floats(queries * dim, 26);
      std::vector<Half> gathered;  // a list that is not consecutive gives the same as its rows do
      for (const std::int32_t token : tokens) {
        gathered.insert(gathered.end(), keys.begin() + token * dim,
                        keys.begin() + (token + 1) * dim);
      }
      std::vector<float> expected(at(queries * count));
      for (std::int64_t q = 0; q < queries; ++q) {
        score(query.data() + q * dim, 1, gathered.data(), count, dim, expected.data() + q * count,
              count);
        (void)softmax(expected.data() + q * count, count, 0.125f);
      }
      std::vector<float> expected_outputs(at(queries * dim));
      for (std::int64_t q = 0; q < queries; ++q) {
        weighted_sum(expected.data() + q * count, 1, values.data(), tokens, dim,
                     expected_outputs.data() + q * dim);
      }
      for (const Isa isa : available_isas()) {
        const WithIsa with(isa);
        std::vector<float> weights(at(queries * count));
        std::vector<float> outputs(at(queries * dim));
        attend(query.data(), queries, keys.data(), values.data(), tokens, dim, 0.125f,
               weights.data(), outputs.data());
        ASSERT_EQ(bits_of(weights), bits_of(expected)) << isa_name(isa) << " " << queries;
        ASSERT_EQ(bits_of(outputs), bits_of(expected_outputs)) << isa_name(isa) << " " << queries;
      }
    }
  }
}

}  // namespace
}  // namespace kvreplay::kernels
