#include "sim/time/context_projection.hpp"

#include <gtest/gtest.h>

#include "tests/sim/sim_specs.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kPromptTokens = 98;
constexpr std::int64_t kStepCount = 2;  // 100 tokens in all

/// Attends to `share` of all tokens, of which it reads 1,000 bytes at offset 500 per step.
IoPlan plan_that_attends(double share) {
  IoPlan plan{"test", tiny_model().kv_shape(), kPromptTokens, kStepCount, 0, {}};
  LayerPlan& layer = plan.layers.emplace_back();
  for (std::int64_t step = 0; step < kStepCount; ++step) {
    add_step(layer, {{500, 1000}}, {}, share * static_cast<double>(kPromptTokens + step + 1));
    layer.compute.score_flops.back() = 70;
    layer.compute.score_bytes.back() = 30;
  }
  layer.dram.entries_bytes = 12800;
  layer.dram.index_bytes = 640;
  layer.dram.cache_bytes = 2000;
  layer.dram.fetched_bytes = 1000;
  layer.io.region_bytes = 4000;
  return plan;
}

TEST(ContextProjection, FullAttentionGrowsWithTheContext) {
  const IoPlan projected = project_context(plan_that_attends(1), 250);
  const LayerPlan& layer = projected.layers.front();
  EXPECT_EQ(projected.prompt_tokens + projected.steps, 250);
  EXPECT_EQ(layer.compute.attended_tokens, (std::vector<double>{249, 250}));
  EXPECT_EQ(layer.accounting.requested_bytes, (std::vector<std::int64_t>{5000, 5000}));
  EXPECT_EQ(layer.accounting.missed_bytes, (std::vector<std::int64_t>{2500, 2500}));
  EXPECT_EQ(layer.io.reads_at(1).front().offset, 1250u);
  EXPECT_EQ(layer.io.reads_at(1).front().bytes, 2500u);
  EXPECT_EQ(layer.dram.cache_bytes, 5000);
  EXPECT_EQ(layer.dram.fetched_bytes, 2500);
}

TEST(ContextProjection, SelectionStaysAsRecorded) {
  const IoPlan recorded = plan_that_attends(0.5);
  const IoPlan projected = project_context(recorded, 250);
  const LayerPlan& before = recorded.layers.front();
  const LayerPlan& after = projected.layers.front();
  EXPECT_EQ(after.compute.attended_tokens, before.compute.attended_tokens);
  EXPECT_EQ(after.accounting.requested_bytes, before.accounting.requested_bytes);
  EXPECT_EQ(after.accounting.missed_bytes, before.accounting.missed_bytes);
  EXPECT_EQ(after.io.reads_at(0).front().bytes, before.io.reads_at(0).front().bytes);
  EXPECT_EQ(after.dram.cache_bytes, before.dram.cache_bytes);
}

TEST(ContextProjection, WhatIsKeptForEveryTokenGrows) {
  for (const double share : {0.5, 1.0}) {
    const IoPlan projected = project_context(plan_that_attends(share), 250);
    const LayerPlan& layer = projected.layers.front();
    EXPECT_EQ(layer.dram.entries_bytes, 32000);
    EXPECT_EQ(layer.dram.index_bytes, 1600);
    EXPECT_EQ(layer.io.region_bytes, 10000u);
    EXPECT_EQ(layer.compute.score_bytes, (std::vector<std::int64_t>{75, 75}));
    EXPECT_EQ(layer.compute.score_flops, (std::vector<std::int64_t>{175, 175}));
  }
}

TEST(ContextProjection, ItsOwnLengthChangesNothing) {
  const IoPlan projected = project_context(plan_that_attends(1), kPromptTokens + kStepCount);
  EXPECT_EQ(projected.prompt_tokens, kPromptTokens);
  EXPECT_EQ(projected.layers.front().accounting.requested_bytes,
            plan_that_attends(1).layers.front().accounting.requested_bytes);
  EXPECT_EQ(projected.layers.front().io.reads_at(0).front().offset, 500u);
}

TEST(ContextProjection, AShorterContextIsRefused) {
  const std::string error =
      user_error_of([] { static_cast<void>(project_context(plan_that_attends(1), 99)); });
  for (const char* text : {"context_tokens", "99", "100"}) {
    EXPECT_NE(error.find(text), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace kvreplay
