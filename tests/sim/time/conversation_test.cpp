#include <gtest/gtest.h>

#include "sim/time/prefill.hpp"
#include "sim/time/restore.hpp"
#include "sim/time/time_plan.hpp"
#include "sim/time/timing_bytes.hpp"
#include "tests/devices/flash/flash_spec.hpp"
#include "tests/sim/sim_specs.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay::conversations {
namespace {

constexpr std::int64_t kPrompt = 1000;
constexpr std::int64_t kSteps = 8;
constexpr std::int64_t kModelLayers = 4;
constexpr std::int64_t kQueryElements = 6 * 16;
constexpr std::int64_t kLayerWeights = 10240 + 6144 + 24576;
constexpr std::int64_t kHeadWeights = 64000;
constexpr std::int64_t kEntryBytes = 2 * 2 * 16 * 2;  // 2 KV heads, key and value, fp16

/// Two decoded steps, then two new tokens that are prefilled, then four decoded steps. Each step
/// reads and writes a page; at the second turn, `live` bytes lie on flash alone.
IoPlan conversation(std::uint64_t live, std::uint64_t cached = 0) {
  IoPlan plan{"test", tiny_model().kv_kinds(), kPrompt, kSteps, 0, {}};
  LayerPlan& layer = plan.layers.emplace_back();
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    add_step(layer, {{step % 2 * 4096, 4096}}, {{live + step * 4096, 4096}}, 10);
  }
  layer.dram.entries_bytes = (kPrompt + kSteps) * kEntryBytes;
  layer.io.region_bytes = live + cached + kSteps * 4096;
  layer.io.prompt_writes = {{0, std::max<std::uint64_t>(live, 4096)}};
  layer.io.prompt_ready = {kPrompt};
  layer.io.prompt_write_bytes = layer.io.prompt_writes[0].bytes;
  LayerPlan::Turns& turns = layer.turns;
  if (live > 0) turns.live.push_back({0, live});
  turns.live_begin.push_back(std::ssize(turns.live));
  if (cached > 0) turns.cached.push_back({live, cached});
  turns.cached_begin.push_back(std::ssize(turns.cached));
  turns.memory_bytes = {0};
  turns.buffered_bytes = {0};
  turns.index_bytes = {0};
  plan.turns = {{0, 0, 2}, {2, 4, kSteps}};
  return plan;
}

TimeOptions options_with(const std::function<void(TimeOptions&)>& change = {}) {
  TimeOptions options;
  options.prefill_chunk_tokens = 1 << 20;
  options.idle_ns = 1'000'000;
  if (change) change(options);
  return options;
}

Timing time(const IoPlan& plan, const PlatformSpec& platform, const DeviceSpec& device,
            const TimeOptions& options) {
  return time_plan(plan, tiny_model(), platform, device, PartConfig<Pipeline>::by_name("serial"),
                   options);
}

TEST(Conversation, OfOneTurnIsARunAfterItsPrefill) {
  IoPlan plan = conversation(1 << 20);
  plan.layers.front().turns = {};
  const DeviceSpec device = test::flash({{"program_us", "20000"}});
  for (const std::int64_t batch : {1, 3}) {
    for (const std::int64_t warm_up : {0, 2}) {
      const TimeOptions options = options_with([&](TimeOptions& o) {
        o.batch = batch;
        o.warm_up_steps = warm_up;
        o.timed_steps = 4;
        o.after_prefill = true;
        o.prefill_chunk_tokens = 100;
      });
      plan.turns = {};
      const Timing run = time(plan, tiny_platform(), device, options);
      EXPECT_TRUE(run.turns.empty());
      plan.turns = {{0, 0, kSteps}};
      Timing conversation = time(plan, tiny_platform(), device, options);
      ASSERT_EQ(conversation.turns.size(), 1u);
      EXPECT_EQ(to_bytes(conversation.turns.front().timing), to_bytes(run));
      EXPECT_EQ(conversation.turns.front().new_tokens, kPrompt);
      EXPECT_EQ(conversation.turns.front().decoded_tokens, kSteps);
      conversation.turns.clear();
      EXPECT_EQ(to_bytes(conversation), to_bytes(run));
      const Timing back = timing_from(to_bytes(time(plan, tiny_platform(), device, options)));
      EXPECT_EQ(to_bytes(back.turns.front().timing), to_bytes(run));
    }
  }
}

TEST(Conversation, ComputeOfNewTokensOfADenseModelByHand) {
  const Timing timing = time(conversation(4096), tiny_platform(), test::flash(), options_with());
  ASSERT_EQ(timing.turns.size(), 2u);
  const TurnTiming& turn = timing.turns[1];
  EXPECT_EQ(turn.earlier_tokens, kPrompt + 2);
  EXPECT_EQ(turn.new_tokens, 2);
  EXPECT_EQ(turn.decoded_tokens, 4);
  EXPECT_EQ(std::ssize(turn.timing.steps), 4);
  // 1 GFLOP/s: they attend to 1003 and 1004 tokens.
  EXPECT_EQ(turn.timing.prefill.compute_ns,
            kModelLayers * (10'000 + 2 * kLayerWeights * 2 + 4 * kQueryElements * (1003 + 1004)) +
                2 * kHeadWeights);
  // All tokens instead of the last two, in one chunk either way.
  EXPECT_EQ(turn.recompute_ns,
            kModelLayers * (2 * kLayerWeights * 1002 + 4 * kQueryElements * (1002 * 1003 / 2)));
  EXPECT_EQ(turn.timing.prefill.ttft_ns,
            turn.timing.prefill.compute_ns + turn.timing.prefill.exposed_write_ns);
  EXPECT_EQ(turn.resume_ns, 0);
}

TEST(Conversation, OnlyDecodedStepsAreTimed) {
  const Timing timing = time(conversation(4096), tiny_platform(), test::flash(), options_with());
  EXPECT_EQ(std::ssize(timing.steps), 6);
  EXPECT_EQ(std::ssize(timing.turns[0].timing.steps), 2);
}

TEST(Conversation, RestoringRunsAtTheRateOfTheLinkOrOfTheFlashWhicheverBinds) {
  constexpr std::uint64_t kBytes = 64 << 20;
  const double total = kModelLayers * static_cast<double>(kBytes);
  const PlatformSpec platform = without_overheads(1e18);
  const auto turn = [&](const test::Overrides& overrides) {
    return time(conversation(kBytes), platform, test::flash(overrides), options_with()).turns[1];
  };
  const TurnTiming by_link = turn({{"link_mb_s", "100"}});
  test::expect_close("restoring bound by the link, s", seconds(by_link.restore_ns), total / 100e6);
  // Nothing to compute: the first token waits for all of it.
  test::expect_close("first token bound by the link, s", seconds(by_link.timing.prefill.ttft_ns),
                     total / 100e6);
  EXPECT_GE(by_link.timing.prefill.read_bytes, std::llround(total));
  // 4 channels of 800 MB/s below a link of 4000.
  const TurnTiming by_channels = turn({{"channel_mb_s", "20"}, {"read_us", "1"}});
  test::expect_close("restoring bound by channels, s", seconds(by_channels.restore_ns),
                     total / 80e6);
}

TEST(Conversation, WhatIdleTimeDropsIsReadBack) {
  IoPlan plan = conversation(1 << 20, 1 << 20);
  LayerPlan& layer = plan.layers.front();
  layer.turns.buffered_bytes = {1 << 19};
  layer.turns.index_bytes = {1 << 18};
  layer.prompt = {.flops = 1'000'000};
  const auto turn = [&](IdleDrops drops, double flops_s = 1e9) {
    return time(plan, without_overheads(flops_s), test::flash(),
                options_with([&](TimeOptions& o) { o.idle_drops = drops; }))
        .turns[1];
  };
  const std::int64_t part = kModelLayers << 20;
  const TurnTiming nothing = turn(IdleDrops::kNothing);
  EXPECT_EQ(nothing.timing.prefill.read_bytes, part);
  EXPECT_EQ(nothing.suspend_bytes, 0);
  const TurnTiming cache = turn(IdleDrops::kCache);
  EXPECT_EQ(cache.timing.prefill.read_bytes, 2 * part);
  EXPECT_EQ(cache.resume_ns, 0);
  const TurnTiming memory = turn(IdleDrops::kMemory);
  EXPECT_EQ(memory.timing.prefill.read_bytes, 2 * part);
  EXPECT_EQ(memory.suspend_bytes, part / 2 + part / 4);
  EXPECT_GT(memory.suspend_ns, 0);
  // A linear part of 1002 tokens after a prompt of 1000, of four layers at 1 GFLOP/s.
  EXPECT_NEAR(static_cast<double>(memory.index_rebuild_ns), 4e6 * 1.002, 4);
  EXPECT_LT(memory.index_read_ns, memory.index_rebuild_ns);
  EXPECT_GT(memory.resume_ns, 0);
  EXPECT_LT(memory.resume_ns, memory.index_rebuild_ns);
  // A fast processor makes the index anew; both are told.
  const TurnTiming anew = turn(IdleDrops::kMemory, 1e12);
  EXPECT_EQ(anew.index_read_ns, memory.index_read_ns);
  EXPECT_LT(anew.index_rebuild_ns, anew.index_read_ns);
  EXPECT_LT(anew.resume_ns, memory.resume_ns);
  EXPECT_EQ(anew.timing.prefill.ttft_ns, anew.timing.prefill.compute_ns +
                                             anew.timing.prefill.index_ns +
                                             anew.timing.prefill.exposed_write_ns);
}

TEST(Conversation, NewTokensMayReadWhatTheySelect) {
  const auto turn = [&](bool selected) {
    return time(conversation(8 << 20), tiny_platform(), test::flash(),
                options_with([&](TimeOptions& o) { o.turns_read_selected = selected; }))
        .turns[1];
  };
  // Two tokens, a page each.
  EXPECT_EQ(turn(true).timing.prefill.read_bytes, kModelLayers * 2 * 4096);
  EXPECT_EQ(turn(false).timing.prefill.read_bytes, kModelLayers * (8 << 20));
}

TEST(SharedPrefix, IsComputedAndWrittenOnceAndReadByAll) {
  IoPlan plan = conversation(8 << 20);
  plan.turns = {};
  const auto time_batch = [&](std::int64_t batch, bool shared) {
    return time(plan, tiny_platform(), test::flash(), options_with([&](TimeOptions& o) {
                  o.batch = batch;
                  o.shared_prefix = shared;
                }));
  };
  const Timing one = time_batch(1, false);
  const Timing alone = time_batch(4, false);
  const Timing shared = time_batch(4, true);
  EXPECT_EQ(to_bytes(time_batch(1, true)), to_bytes(one));
  EXPECT_EQ(shared.prefill.ttft_ns, one.prefill.ttft_ns);
  EXPECT_EQ(shared.prefill.write_bytes, one.prefill.write_bytes);
  EXPECT_EQ(shared.prompt_write_bytes, one.prompt_write_bytes);
  EXPECT_EQ(alone.prefill.write_bytes, 4 * one.prefill.write_bytes);
  // The steps of the four read two pages of the prompt, each once; they write pages of their own.
  for (std::size_t i = 0; i < shared.steps.size(); ++i) {
    EXPECT_EQ(alone.steps[i].read_bytes, kModelLayers * 4 * 4096);
    EXPECT_LE(shared.steps[i].read_bytes, kModelLayers * 2 * 4096);
    EXPECT_EQ(shared.steps[i].write_bytes, alone.steps[i].write_bytes);
    EXPECT_EQ(shared.steps[i].compute_ns, alone.steps[i].compute_ns);
  }
  // What is rewritten is a sequence's own.
  plan.layers.front().io.writes.assign(kSteps, {0, 8192});
  EXPECT_EQ(time_batch(4, true).steps.front().read_bytes, kModelLayers * 4 * 4096);

  plan = conversation(4096);
  EXPECT_NE(user_error_of([&] { (void)time_batch(2, true); }).find("shared_prefix"),
            std::string::npos);
}

TEST(Restore, CrossesWhereReadingATokenTakesNoLongerThanComputingIt) {
  const ModelSpec model = tiny_model();
  const std::int64_t per_token = kModelLayers * kEntryBytes;
  const DeviceSpec device = test::flash({{"link_mb_s", "1"}, {"command_latency_us", "0"}});
  // Reading takes 1 s per MB; computing 2 operations per weight, and attention that grows.
  const PlatformSpec platform = without_overheads(1e9);
  const RestoreTimes times =
      restore_times(model, platform, device, {.tokens = 10'000, .new_tokens = 1});
  EXPECT_EQ(times.bytes, 10'000 * per_token);
  test::expect_close("restoring, s", seconds(times.restore_ns), 10'000.0 * per_token / 1e6);
  constexpr std::int64_t kPairs = std::int64_t{10'000} * 10'001 / 2;  // of a query and a key
  // Each layer rounds to a nanosecond.
  EXPECT_NEAR(static_cast<double>(times.recompute_ns),
              static_cast<double>(kModelLayers *
                                  (2 * kLayerWeights * 10'000 + 4 * kQueryElements * kPairs)),
              kModelLayers);
  const Prefix next{.new_tokens = 1};
  const auto found = restore_crossover(model, platform, device, next, 1 << 16);
  ASSERT_TRUE(found);
  // 512 ns per token and layer at 1 MB/s of 128 bytes: 128,000 = 2 weights + 2 query elements n.
  const double by_hand = (128'000.0 - 2.0 * kLayerWeights) / (2.0 * kQueryElements);
  test::expect_close("crossover, tokens", static_cast<double>(*found), by_hand, 0.05);
  EXPECT_FALSE(restore_crossover(model, without_overheads(1e15), device, next, 4096));
}

}  // namespace
}  // namespace kvreplay::conversations
