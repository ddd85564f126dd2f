#include "policies/decide/quality.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "policies/decide/layer_means.hpp"
#include "tests/support/random_layer.hpp"

namespace kvreplay {
namespace {

struct Given {
  std::vector<Token> tokens;
  std::vector<float> weights;
  std::vector<float> output;
  operator HeadAttention() const { return {tokens, weights, output}; }
};

/// One query head; keys (0), (ln 2), (ln 4), (ln 8) and a query of 1 without scaling: probabilities
/// 1/15, 2/15, 4/15, 8/15. Values 0, 1, 0, 1: the exact output is 10/15.
TEST(Quality, MatchesAHandComputedStep) {
  const std::vector<Half> keys{to_half(0), to_half(std::log(2.0F)), to_half(std::log(4.0F)),
                               to_half(std::log(8.0F))};
  const std::vector<Half> values{to_half(0), to_half(1), to_half(0), to_half(1)};
  const Entries entries{{keys.data(), 1, 4, 1, 4}, {values.data(), 1, 4, 1, 4}};
  LayerShape shape{.query_heads = 1, .kv_heads = 1, .head_dim = 1, .softmax_scale = 1};
  const std::vector<float> query{1};
  ExactStep exact;
  exact.compute(shape, entries, query);
  EXPECT_NEAR(exact.probabilities(0)[2], 4.0 / 15, 1e-3);
  EXPECT_NEAR(exact.output(0)[0], 10.0 / 15, 1e-3);

  // Attended to tokens 1 and 3. The true best two are 2 and 3; the output is 1.
  const HeadQuality quality = measure(exact, 0, Given{{1, 3}, {0.2F, 0.8F}, {1}});
  EXPECT_FLOAT_EQ(quality.recall, 0.5F);
  EXPECT_NEAR(quality.attention_mass, 10.0 / 15, 1e-3);
  EXPECT_NEAR(quality.best_attention_mass, 12.0 / 15, 1e-3);
  EXPECT_NEAR(quality.output_error, 0.5, 2e-3);

  // A window of two tokens: the reference sees tokens 2 and 3 alone.
  shape.sliding_window = 2;
  exact.compute(shape, entries, query);
  EXPECT_EQ(exact.first_token(), 2);
  EXPECT_NEAR(exact.probabilities(0)[1], 8.0 / 12, 1e-3);
  EXPECT_NEAR(measure(exact, 0, Given{{3}, {1}, {1}}).attention_mass, 8.0 / 12, 1e-3);
}

TEST(Quality, TiesGoToTheLowerToken) {
  const std::vector<Half> same(4, to_half(1));
  const Entries entries{{same.data(), 1, 4, 1, 4}, {same.data(), 1, 4, 1, 4}};
  const LayerShape shape{.query_heads = 1, .kv_heads = 1, .head_dim = 1, .softmax_scale = 1};
  ExactStep exact;
  exact.compute(shape, entries, std::vector<float>{1});
  EXPECT_FLOAT_EQ(measure(exact, 0, Given{{0, 1}, {}, {1}}).recall, 1);
  EXPECT_FLOAT_EQ(measure(exact, 0, Given{{0, 3}, {}, {1}}).recall, 0.5);
}

/// The best tokens are kept from system to system, and narrow each other's choice.
TEST(Quality, WhatWasAskedBeforeChangesNoChoice) {
  RandomLayer layer(200, 8);  // 6 query heads on 2 KV heads
  layer.shape.sliding_window = 190;
  ExactStep kept;
  for (const std::vector<std::int64_t>& asked : std::vector<std::vector<std::int64_t>>{
           {7, 30, 30, 189, 1}, {5, 180, 60, 5}, {4, 3, 2}, {190}, {100, 20}, {6}}) {
    const std::int64_t n = 200 + asked.front() % 8;
    kept.compute(layer.shape, layer.entries(n + 1), layer.query(n));
    for (std::int64_t head = 0; head < layer.shape.query_heads; ++head) {
      for (const std::int64_t count : asked) {
        ExactStep fresh;
        fresh.compute(layer.shape, layer.entries(n + 1), layer.query(n));
        const std::span<const float> logits = fresh.logits(head);
        std::vector<Token> order(logits.size());
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, std::greater<>(),
                                 [&](Token t) { return logits[static_cast<std::size_t>(t)]; });
        order.resize(static_cast<std::size_t>(count));
        std::ranges::sort(order);
        EXPECT_EQ(kept.best(head, count).tokens, order) << head << " " << count;
        EXPECT_EQ(kept.best(head, count).mass, fresh.best(head, count).mass);
      }
    }
  }
}

TEST(Quality, MatchesASlowReferenceWithGroupedQueries) {
  const RandomLayer layer(60, 1);
  const Token n = 60;
  ExactStep exact;
  exact.compute(layer.shape, layer.entries(n + 1), layer.query(n));
  const std::vector<Token> attended{0, 3, 4, 17, 33, 59, 60};
  for (std::int64_t head = 0; head < layer.shape.query_heads; ++head) {
    std::vector<std::pair<double, Token>> order;  // (-logit, token)
    double total = 0;
    double mass = 0;
    for (Token t = 0; t <= n; ++t) {
      const double logit = layer.logit(head, n, t);
      order.emplace_back(-logit, t);
      const double weight = std::exp(logit * static_cast<double>(layer.shape.softmax_scale));
      total += weight;
      if (std::find(attended.begin(), attended.end(), t) != attended.end()) mass += weight;
    }
    std::sort(order.begin(), order.end());
    double best = 0;
    std::int64_t found = 0;
    for (std::size_t i = 0; i < attended.size(); ++i) {
      best += std::exp(-order[i].first * static_cast<double>(layer.shape.softmax_scale));
      found += std::count(attended.begin(), attended.end(), order[i].second);
    }
    const std::vector<float> output(static_cast<std::size_t>(layer.shape.head_dim), 0.0F);
    const HeadQuality quality = measure(exact, head, HeadAttention{attended, {}, output});
    EXPECT_NEAR(quality.recall, static_cast<double>(found) / 7, 1e-6);
    EXPECT_NEAR(quality.attention_mass, mass / total, 1e-5);
    EXPECT_NEAR(quality.best_attention_mass, best / total, 1e-5);
    EXPECT_FLOAT_EQ(quality.output_error, 1);  // an output of zero is off by the whole norm
  }
}

TEST(ResidualError, IsTheProjectedErrorOfAllHeadsAgainstTheStream) {
  const RandomLayer layer(30, 1);  // 6 query heads on 2 KV heads
  const std::int64_t heads = layer.shape.query_heads;
  const std::int64_t dim = layer.shape.head_dim;
  ExactStep exact;
  exact.compute(layer.shape, layer.entries(31), layer.query(30));
  OutputWeights weights{std::vector<float>(static_cast<std::size_t>(5 * heads * dim)), {9, 4}};
  for (std::size_t i = 0; i < weights.sketch.size(); ++i) {
    weights.sketch[i] = static_cast<float>(static_cast<int>(i * 37 % 23) - 11) / 16;
  }
  std::vector<HeadAttention> attention;
  std::vector<std::vector<float>> outputs;
  std::vector<double> error;
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::span<const float> output = exact.output(head);
    outputs.emplace_back(output.begin(), output.end());
    attention.push_back({{}, {}, outputs.back()});
  }
  ResidualError residual(weights);
  EXPECT_EQ(residual.measure(exact, attention, 1), 0);
  for (std::vector<float>& output : outputs) {
    for (float& value : output) {
      const float before = value;
      value += static_cast<float>(std::ssize(error) % 7) / 8;
      error.push_back(static_cast<double>(value) - static_cast<double>(before));
    }
  }
  double squares = 0;
  for (std::size_t row = 0; row < 5; ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < error.size(); ++i) {
      sum += error[i] * static_cast<double>(weights.sketch[row * error.size() + i]);
    }
    squares += sum * sum;
  }
  EXPECT_NEAR(residual.measure(exact, attention, 1), std::sqrt(squares) / 4, 1e-5);
  EXPECT_NEAR(residual.measure(exact, attention, 0), std::sqrt(squares) / 9, 1e-5);
}

TEST(LayerMeans, TheResidualErrorCountsEveryLayerAndNamesTheWorst) {
  std::vector<LayerMeans> layers(3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::int64_t i = 0; i < 3; ++i) layers[static_cast<std::size_t>(i)].layer = 4 + i;
  layers[0].full_attention = true;
  layers[1].means = {.output_error = 0.5, .residual_error = 0.1};
  layers[2].means = {.output_error = 0.2, .residual_error = 0.2};
  EXPECT_DOUBLE_EQ(system_means(layers).output_error, 0.35);
  EXPECT_DOUBLE_EQ(system_means(layers).residual_error, std::sqrt((0.01 + 0.04) / 3));
  EXPECT_EQ(worst_layer(layers).layer, 6);
  layers[0].means.residual_error = nan;
  EXPECT_TRUE(std::isnan(system_means(layers).residual_error));
  EXPECT_EQ(worst_layer(layers).layer, 5);
}

}  // namespace
}  // namespace kvreplay
