#include "traces/operations/inspect.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/traces/raw_trace.hpp"

namespace kvreplay {
namespace {

using testing::HasSubstr;

class InspectTest : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string path_ = folder_.file("a.kvtrace.h5");
};

/// The plain definition, over every decode step, query head by query head.
AttentionSummary reference(const TraceLayer& layer, const TraceInfo& info, std::int64_t window) {
  AttentionSummary mean;
  double count = 0;
  for (std::int64_t head = 0; head < info.query_heads; ++head) {
    const std::int64_t kv_head = head / (info.query_heads / info.kv_heads);
    for (std::int64_t position = info.prompt_tokens; position < info.tokens; ++position) {
      std::vector<double> weights(static_cast<std::size_t>(position + 1));
      double sum = 0;
      for (std::int64_t token = 0; token <= position; ++token) {
        double score = 0;
        for (std::int64_t i = 0; i < info.head_dim; ++i) {
          score += static_cast<double>(
                       to_float(layer.queries.row(head, position - layer.query_start)[i])) *
                   static_cast<double>(to_float(layer.keys.row(kv_head, token)[i]));
        }
        const bool seen = window == 0 || token > position - window;
        weights[static_cast<std::size_t>(token)] = seen ? std::exp(score * info.softmax_scale) : 0;
        sum += weights[static_cast<std::size_t>(token)];
      }
      for (std::size_t token = 0; token < weights.size(); ++token) {
        const double weight = weights[token] /= sum;
        if (weight > 0) mean.entropy_nats -= weight * std::log(weight);
        if (token < 16) mean.first_16_mass += weight;
        if (token + 64 >= weights.size()) mean.last_64_mass += weight;
      }
      std::sort(weights.begin(), weights.end(), std::greater<>{});
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (i < 16) mean.top_16_mass += weights[i];
        if (i < 64) mean.top_64_mass += weights[i];
        if (i < 256) mean.top_256_mass += weights[i];
      }
      count += 1;
    }
  }
  for (double* sum : {&mean.entropy_nats, &mean.first_16_mass, &mean.last_64_mass,
                      &mean.top_16_mass, &mean.top_64_mass, &mean.top_256_mass}) {
    *sum /= count;
  }
  return mean;
}

void expect_near(const AttentionSummary& found, const AttentionSummary& expected) {
  constexpr double kNear = 1e-9;
  EXPECT_NEAR(found.entropy_nats, expected.entropy_nats, kNear);
  EXPECT_NEAR(found.top_16_mass, expected.top_16_mass, kNear);
  EXPECT_NEAR(found.top_64_mass, expected.top_64_mass, kNear);
  EXPECT_NEAR(found.top_256_mass, expected.top_256_mass, kNear);
  EXPECT_NEAR(found.first_16_mass, expected.first_16_mass, kNear);
  EXPECT_NEAR(found.last_64_mass, expected.last_64_mass, kNear);
}

TEST_F(InspectTest, AttentionFollowsItsDefinition) {
  write_synthetic_trace(path_, {.head_dim = 16, .prompt = 300, .decode = 20});
  const TraceReader trace(path_);
  const TraceSummary summary = summarise(trace);
  EXPECT_EQ(summary.measured_steps, 20);
  ASSERT_EQ(summary.layers.size(), 2U);
  for (std::int64_t i = 0; i < 2; ++i) {
    const LayerSummary& layer = summary.layers[static_cast<std::size_t>(i)];
    ASSERT_TRUE(layer.attention.has_value());
    expect_near(*layer.attention, reference(trace.load_layer(i), trace.info(), 0));
    // The generator's queries aim at topics: far from uniform.
    EXPECT_LT(layer.attention->entropy_nats, 0.9 * std::log(300));
    EXPECT_LT(layer.attention->top_16_mass, layer.attention->top_64_mass);
  }
}

TEST_F(InspectTest, SlidingWindowsHideOlderTokens) {
  RawTrace raw;
  raw.attributes["sliding_window"] = std::vector<std::int64_t>{5, 0};
  raw.write(path_);
  const TraceReader trace(path_);
  const TraceSummary summary = summarise(trace);
  expect_near(*summary.layers[0].attention, reference(trace.load_layer(0), trace.info(), 5));
  expect_near(*summary.layers[1].attention, reference(trace.load_layer(1), trace.info(), 0));
  EXPECT_EQ(summary.layers[0].sliding_window, 5);
  EXPECT_NEAR(summary.layers[0].attention->last_64_mass, 1, 1e-12);
}

TEST_F(InspectTest, NormsAndPerplexity) {
  RawTrace raw;
  auto& keys = raw.datasets["/layer/01/key"];
  std::vector<Half> values(2 * 24 * 8);
  for (std::size_t row = 0; row < 48; ++row) {
    // Rows (3, 4, 0 ...) have norm 5, one row has norm 10.
    values[row * 8] = to_half(row == 17 ? 6.0F : 3.0F);
    values[row * 8 + 1] = to_half(row == 17 ? 8.0F : 4.0F);
  }
  keys.values = values;
  std::vector<float> logs(24, -1.0F);
  for (std::size_t i = 16; i < 23; ++i) logs[i] = -2.0F;
  logs.back() = -100.0F;  // the next token of the last position is not in the trace
  raw.datasets["/tokens/log_probability"].values = logs;
  raw.write(path_);
  const TraceSummary summary = summarise(TraceReader(path_));
  EXPECT_NEAR(summary.layers[0].key_norm.mean, (47 * 5.0 + 10) / 48, 1e-12);
  EXPECT_EQ(summary.layers[0].key_norm.max, 10);
  EXPECT_NEAR(summary.perplexity, std::exp((16 * 1.0 + 7 * 2.0) / 23), 1e-9);
  ASSERT_TRUE(summary.decode_perplexity.has_value());
  EXPECT_NEAR(*summary.decode_perplexity, std::exp(2.0), 1e-9);
}

TEST_F(InspectTest, LongDecodesAreSampled) {
  write_synthetic_trace(path_, {.layers = 1, .head_dim = 8, .prompt = 20, .decode = 100});
  const TraceSummary summary = summarise(TraceReader(path_));
  EXPECT_EQ(summary.measured_steps, 48);
}

TEST_F(InspectTest, ASingleDecodeStep) {
  write_synthetic_trace(path_, {.layers = 1, .head_dim = 8, .prompt = 20, .decode = 1});
  const TraceReader trace(path_);
  const TraceSummary summary = summarise(trace);
  EXPECT_EQ(summary.measured_steps, 1);
  EXPECT_FALSE(summary.decode_perplexity.has_value());
  expect_near(*summary.layers[0].attention, reference(trace.load_layer(0), trace.info(), 0));
}

TEST_F(InspectTest, KeysBeforeRopeHaveNoAttention) {
  RawTrace raw;
  raw.attributes["key_state"] = std::string("pre_rope");
  raw.write(path_);
  const TraceSummary summary = summarise(TraceReader(path_));
  EXPECT_FALSE(summary.layers[0].attention.has_value());
  EXPECT_THAT(to_text(summary), HasSubstr("not measured"));
}

TEST_F(InspectTest, TextHoldsTheFacts) {
  write_synthetic_trace(path_, {.head_dim = 8, .prompt = 20, .decode = 4});
  const std::string text = to_text(summarise(TraceReader(path_)));
  EXPECT_THAT(text, HasSubstr("6 query heads on 2 KV heads"));
  EXPECT_THAT(text, HasSubstr("prompt 20, decode 4"));
  EXPECT_THAT(text, HasSubstr("synthetic"));
  EXPECT_THAT(text, testing::EndsWith("\n"));
}

}  // namespace
}  // namespace kvreplay
