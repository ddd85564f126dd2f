#include "sim/time/context_projection.hpp"

#include <gtest/gtest.h>

#include "tests/sim/sim_specs.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kPrompt = 98;
constexpr std::int64_t kSteps = 2;  // 100 tokens in all

/// Attends to `share` of all tokens, of which it reads 1,000 bytes at offset 500 a step.
IoPlan plan_of(double share) {
  IoPlan plan{"test", tiny_model().kv_shape(), kPrompt, kSteps, {}};
  LayerPlan& layer = plan.layers.emplace_back();
  for (std::int64_t step = 0; step < kSteps; ++step) {
    add_step(layer, {{500, 1000}}, {}, share * static_cast<double>(kPrompt + step + 1));
    layer.score_flops.back() = 70;
    layer.score_bytes.back() = 30;
  }
  layer.entries_bytes = 12800;
  layer.index_bytes = 640;
  layer.cache_bytes = 2000;
  layer.fetched_bytes = 1000;
  layer.region_bytes = 4000;
  return plan;
}

TEST(ContextProjection, FullAttentionGrowsWithTheContext) {
  const IoPlan projected = project_context(plan_of(1), 250);
  const LayerPlan& layer = projected.layers.front();
  EXPECT_EQ(projected.prompt_tokens + projected.steps, 250);
  EXPECT_EQ(layer.attended_tokens, (std::vector<double>{249, 250}));
  EXPECT_EQ(layer.asked_bytes, (std::vector<std::int64_t>{5000, 5000}));
  EXPECT_EQ(layer.missed_bytes, (std::vector<std::int64_t>{2500, 2500}));
  EXPECT_EQ(layer.reads_at(1).front().offset, 1250u);
  EXPECT_EQ(layer.reads_at(1).front().bytes, 2500u);
  EXPECT_EQ(layer.cache_bytes, 5000);
  EXPECT_EQ(layer.fetched_bytes, 2500);
}

TEST(ContextProjection, SelectionStaysAsRecorded) {
  const IoPlan recorded = plan_of(0.5);
  const IoPlan projected = project_context(recorded, 250);
  const LayerPlan& before = recorded.layers.front();
  const LayerPlan& after = projected.layers.front();
  EXPECT_EQ(after.attended_tokens, before.attended_tokens);
  EXPECT_EQ(after.asked_bytes, before.asked_bytes);
  EXPECT_EQ(after.missed_bytes, before.missed_bytes);
  EXPECT_EQ(after.reads_at(0).front().bytes, before.reads_at(0).front().bytes);
  EXPECT_EQ(after.cache_bytes, before.cache_bytes);
}

TEST(ContextProjection, WhatIsKeptForEveryTokenGrows) {
  for (const double share : {0.5, 1.0}) {
    const IoPlan projected = project_context(plan_of(share), 250);
    const LayerPlan& layer = projected.layers.front();
    EXPECT_EQ(layer.entries_bytes, 32000);
    EXPECT_EQ(layer.index_bytes, 1600);
    EXPECT_EQ(layer.region_bytes, 10000u);
    EXPECT_EQ(layer.score_bytes, (std::vector<std::int64_t>{75, 75}));
    EXPECT_EQ(layer.score_flops, (std::vector<std::int64_t>{175, 175}));
  }
}

TEST(ContextProjection, ItsOwnLengthChangesNothing) {
  const IoPlan projected = project_context(plan_of(1), kPrompt + kSteps);
  EXPECT_EQ(projected.prompt_tokens, kPrompt);
  EXPECT_EQ(projected.layers.front().asked_bytes, plan_of(1).layers.front().asked_bytes);
  EXPECT_EQ(projected.layers.front().reads_at(0).front().offset, 500u);
}

TEST(ContextProjection, AShorterContextIsRefused) {
  const std::string error =
      user_error_of([] { static_cast<void>(project_context(plan_of(1), 99)); });
  for (const char* text : {"context_tokens", "99", "100"}) {
    EXPECT_NE(error.find(text), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace kvreplay
