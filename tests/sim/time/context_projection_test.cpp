#include "sim/time/context_projection.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "tests/sim/sim_specs.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kPromptTokens = 98;
constexpr std::int64_t kStepCount = 2;  // 100 tokens in all

constexpr std::int64_t kBytesPerToken = 10;

/// Attends to `share` of all tokens. Whatever a step reads (at offset 500), scores and holds, it
/// does so in proportion to the tokens before it.
IoPlan plan_that_attends(double share) {
  IoPlan plan{"test", tiny_model().kv_kinds(), kPromptTokens, kStepCount, 0, {}};
  LayerPlan& layer = plan.layers.emplace_back();
  for (std::int64_t step = 0; step < kStepCount; ++step) {
    const std::int64_t before = kPromptTokens + step;
    add_step(layer, {{500, static_cast<std::uint64_t>(kBytesPerToken * before)}}, {},
             share * static_cast<double>(before + 1));
    layer.compute.score_flops.back() = 7 * before;
    layer.compute.score_bytes.back() = 3 * before;
  }
  layer.dram.entries_bytes = 12800;
  layer.dram.index_bytes = 6 * 99;
  layer.dram.cache_bytes = 2000;
  layer.dram.fetched_bytes = 990;
  layer.io.region_bytes = 4000;
  return plan;
}

TEST(ContextProjection, FullAttentionGrowsWithTheContext) {
  const IoPlan projected = project_context(plan_that_attends(1), 250);
  const LayerPlan& layer = projected.layers.front();
  EXPECT_EQ(projected.prompt_tokens + projected.steps, 250);
  EXPECT_EQ(layer.compute.attended_tokens, (std::vector<double>{249, 250}));
  EXPECT_EQ(layer.accounting.requested_bytes, (std::vector<std::int64_t>{4960, 4980}));
  EXPECT_EQ(layer.accounting.missed_bytes, (std::vector<std::int64_t>{2480, 2490}));
  EXPECT_EQ(layer.io.reads_at(1).front().offset, 1257u);  // 500 * 249 / 99
  EXPECT_EQ(layer.io.reads_at(1).front().end(), 3748u);   // 1490 * 249 / 99, outwards
  EXPECT_EQ(layer.dram.cache_bytes, 5000);
  EXPECT_EQ(layer.dram.fetched_bytes, 2490);
}

TEST(ContextProjection, ALayerGrowsNoFurtherThanItsWindow) {
  IoPlan plan = plan_that_attends(0);
  LayerPlan& within = plan.layers.front();
  within.sliding_window = 40;
  within.compute.attended_tokens = {40, 40};
  const LayerPlan same = project_context(plan, 250).layers.front();
  EXPECT_EQ(same.compute.attended_tokens, (std::vector<double>{40, 40}));
  EXPECT_EQ(same.accounting.requested_bytes, within.accounting.requested_bytes);
  EXPECT_EQ(same.io.reads_at(1).front().offset, 500u);
  EXPECT_EQ(same.dram.cache_bytes, 2000);
  EXPECT_EQ(same.dram.index_bytes, 6 * 99);
  EXPECT_EQ(same.dram.entries_bytes, 32000) << "of all tokens, whatever is held";

  // A window that the recording did not fill: from 100 tokens to 150.
  plan = plan_that_attends(1);
  plan.layers.front().sliding_window = 150;
  const LayerPlan filled = project_context(plan, 250).layers.front();
  EXPECT_EQ(filled.compute.attended_tokens, (std::vector<double>{150, 150}));
  EXPECT_EQ(filled.accounting.requested_bytes, (std::vector<std::int64_t>{2980, 2980}));
  EXPECT_EQ(filled.dram.cache_bytes, 3000);
  EXPECT_EQ(filled.dram.index_bytes, 6 * 149);
}

TEST(ContextProjection, ThePromptsWritesGrowAndWorkBySquareTwice) {
  IoPlan plan = plan_that_attends(1);
  LayerPlan& before = plan.layers.front();
  before.io.prompt_writes = {{0, 1000}, {1000, 600}};
  before.io.prompt_ready = {64, 98};
  before.io.prompt_write_bytes = 1600;
  before.prompt = {
      .flops = 100, .square_flops = 1000, .bytes = 40, .factorise_flops = 60, .similarities = 20};
  const IoPlan projected = project_context(plan, 250);
  const LayerPlan& after = projected.layers.front();
  EXPECT_EQ(after.io.prompt_writes, (std::vector<Extent>{{0, 2500}, {2500, 1500}}));
  EXPECT_EQ(after.io.prompt_ready, (std::vector<std::int64_t>{162, 248})) << "of 248";
  EXPECT_EQ(after.io.prompt_write_bytes, 4000u);
  EXPECT_EQ(after.prompt.flops, 250);
  EXPECT_EQ(after.prompt.square_flops, 6250);
  EXPECT_EQ(after.prompt.bytes, 100);
  EXPECT_EQ(after.prompt.factorise_flops, 150);
  EXPECT_EQ(after.prompt.similarities, 125) << "with clusters by the length";
  before.prompt.square_flops = 0;
  EXPECT_EQ(project_context(plan, 250).layers.front().prompt.similarities, 50);
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

TEST(ContextProjection, AShareOfTheContextStaysAShare) {
  for (const bool has_capacity : {false, true}) {
    IoPlan recorded = plan_that_attends(0.5);
    recorded.bound.share_of_context = true;
    recorded.cache_has_capacity = has_capacity;
    const IoPlan projected = project_context(recorded, 250);
    const LayerPlan& before = recorded.layers.front();
    const LayerPlan& after = projected.layers.front();
    for (std::size_t step = 0; step < 2; ++step) {
      const auto tokens_before = static_cast<std::int64_t>(step) + 248;
      const double selected = before.compute.attended_tokens[step] - 1;  // and its own
      EXPECT_DOUBLE_EQ(
          after.compute.attended_tokens[step],
          1 + selected * static_cast<double>(tokens_before) /
                  static_cast<double>(kPromptTokens + static_cast<std::int64_t>(step)));
      EXPECT_EQ(after.accounting.hit_bytes[step], kBytesPerToken * tokens_before);
      EXPECT_EQ(after.accounting.requested_bytes[step], 2 * kBytesPerToken * tokens_before);
      EXPECT_EQ(after.accounting.requested_bytes[step],
                after.accounting.hit_bytes[step] + after.accounting.missed_bytes[step]);
      // Two and a half times as many reads of the same size: rounded up, and each in its own place.
      const auto reads = after.io.reads_at(static_cast<std::int64_t>(step));
      const std::uint64_t bytes = 980 + 10 * step;
      EXPECT_EQ(std::vector<Extent>(reads.begin(), reads.end()),
                (std::vector<Extent>{{500, bytes}, {4500, bytes}, {8500, bytes}}));
    }
    EXPECT_GE(after.io.region_bytes, 10000u);
    EXPECT_EQ(after.dram.cache_bytes, has_capacity ? before.dram.cache_bytes : 5030);
    EXPECT_EQ(after.dram.fetched_bytes, 2490);
  }
}

TEST(ContextProjection, OfManyReadsAShareIsSpreadEvenly) {
  IoPlan recorded{"test", {tiny_model().kv_shape()}, kPromptTokens, kStepCount, 0, {}};
  recorded.bound.share_of_context = true;
  LayerPlan& layer = recorded.layers.emplace_back();
  std::vector<Extent> reads;
  for (std::uint64_t i = 0; i < 8; ++i) reads.push_back({i * 100, 10});
  for (std::int64_t step = 0; step < kStepCount; ++step) add_step(layer, reads, {}, 20);
  layer.io.region_bytes = 1000;
  const IoPlan projected = project_context(recorded, 125);
  const auto of_step = projected.layers.front().io.reads_at(1);
  ASSERT_EQ(of_step.size(), 10U);
  EXPECT_TRUE(std::equal(reads.begin(), reads.end(), of_step.begin()));
  EXPECT_EQ(of_step[8].offset, 1000u);
  EXPECT_EQ(of_step[9].offset, 1400u);
}

TEST(ContextProjection, WhatIsKeptForEveryTokenGrows) {
  for (const double share : {0.5, 1.0}) {
    const IoPlan projected = project_context(plan_that_attends(share), 250);
    const LayerPlan& layer = projected.layers.front();
    EXPECT_EQ(layer.dram.entries_bytes, 32000);
    EXPECT_EQ(layer.dram.index_bytes, 6 * 249);
    EXPECT_EQ(layer.io.region_bytes, 10000u);
    EXPECT_EQ(layer.compute.score_bytes, (std::vector<std::int64_t>{3 * 248, 3 * 249}));
    EXPECT_EQ(layer.compute.score_flops, (std::vector<std::int64_t>{7 * 248, 7 * 249}));
  }
}

TEST(ContextProjection, AShareOfThePromptGrowsWithThePrompt) {
  IoPlan recorded = plan_that_attends(0.5);
  recorded.bound = {.share_of_context = true, .share_of_prompt = true};
  for (double& attended : recorded.layers.front().compute.attended_tokens) attended = 50;
  recorded.layers.front().dram.cache_bytes = 49 * 20;
  const IoPlan projected = project_context(recorded, 250);
  const LayerPlan& layer = projected.layers.front();
  EXPECT_EQ(layer.compute.attended_tokens, (std::vector<double>{125, 125})) << "124 and its own";
  EXPECT_EQ(layer.dram.cache_bytes, 124 * 20);
}

TEST(ContextProjection, ABudgetThatIsLargerThanTheRecordingIsNotExceeded) {
  for (const bool covers_all : {false, true}) {
    IoPlan recorded = plan_that_attends(1);
    recorded.bound = {.tokens = 150, .covers_all = covers_all};
    recorded.layers.front().compute.buffered_entries = {8 * tiny_model().kv_shape().kv_heads,
                                                        8 * tiny_model().kv_shape().kv_heads};
    const IoPlan projected = project_context(recorded, 250);
    const LayerPlan& layer = projected.layers.front();
    // 8 in memory and the step's own come on top, or do not.
    const double most = covers_all ? 150 : 159;
    EXPECT_EQ(layer.compute.attended_tokens, (std::vector<double>{most, most}));
    // Of 100, 91 were in groups.
    EXPECT_EQ(layer.dram.fetched_bytes, covers_all ? 1534 : 1632);  // 990 * 141 / 91, 150 / 91
    // Of full attention, the budget says nothing.
    recorded.layers.front().full_attention = true;
    EXPECT_EQ(project_context(recorded, 250).layers.front().compute.attended_tokens,
              (std::vector<double>{249, 250}));
  }
  IoPlan within = plan_that_attends(1);
  within.bound.tokens = 1000;
  EXPECT_EQ(project_context(within, 250).layers.front().compute.attended_tokens,
            (std::vector<double>{249, 250}));
}

TEST(ContextProjection, WhatDoesNotDependOnTheLengthStays) {
  IoPlan recorded = plan_that_attends(1);
  LayerPlan& before = recorded.layers.front();
  before.growth.index_fixed_bytes = 100;
  before.growth.index_prompt_bytes = 98;
  before.growth.newest_bytes = 500;
  before.dram.index_bytes = 100 + 98 + 99;
  before.dram.buffered_bytes = 77;
  const IoPlan projected = project_context(recorded, 250);
  const LayerPlan& after = projected.layers.front();
  EXPECT_EQ(after.dram.index_bytes, 100 + 248 + 249);
  EXPECT_EQ(after.dram.cache_bytes, 500 + 1500 * 250 / 100);
  EXPECT_EQ(after.dram.buffered_bytes, 77);
}

TEST(ContextProjection, AStepThatGroupsAllTokensAnewReadsAll) {
  IoPlan recorded = plan_that_attends(0.5);
  LayerPlan& before = recorded.layers.front();
  before.io.live_bytes = 2000;
  before.compute.regrouped_entries = {0, 99 * tiny_model().kv_shape().kv_heads};
  const LayerPlan after = project_context(recorded, 250).layers.front();
  EXPECT_EQ(after.accounting.requested_bytes,
            (std::vector<std::int64_t>{before.accounting.requested_bytes[0], 4980}));
  EXPECT_EQ(after.compute.regrouped_entries[1], 249 * tiny_model().kv_shape().kv_heads);
  EXPECT_EQ(after.dram.fetched_bytes, 2490);
  EXPECT_EQ(after.compute.attended_tokens, before.compute.attended_tokens);
}

TEST(ContextProjection, ACacheGrowsToItsCapacity) {
  for (const auto& [share, capacity, expected] :
       {std::tuple{1.0, 3000, 3000}, {1.0, 9000, 5000}, {0.5, 3000, 3000}, {0.5, 9000, 5030}}) {
    IoPlan recorded = plan_that_attends(share);
    recorded.cache_has_capacity = true;
    recorded.layers.front().growth = {.capacity_bytes = capacity, .holds_all = true};
    EXPECT_EQ(project_context(recorded, 250).layers.front().dram.cache_bytes, expected);
    // What was full, or held what is selected alone, stays as it was.
    recorded.layers.front().growth = {.capacity_bytes = 2000};
    EXPECT_EQ(project_context(recorded, 250).layers.front().dram.cache_bytes, 2000);
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
