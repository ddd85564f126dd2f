#include "sim/time/prefill.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "devices/schedule/schedule.hpp"
#include "devices/schedule/time_schedule.hpp"
#include "sim/time/compute_cost.hpp"
#include "sim/time/time_plan.hpp"
#include "sim/time/timeline.hpp"
#include "tests/devices/flash/flash_spec.hpp"
#include "tests/sim/sim_specs.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kPrefillTokens = 1000;
constexpr std::int64_t kModelLayers = 4;
constexpr std::int64_t kQueryElements = 6 * 16;
constexpr std::int64_t kLayerWeights = 10240 + 6144 + 24576;
constexpr std::int64_t kHeadWeights = 64000;
constexpr std::int64_t kEntryBytes = 2 * 2 * 16 * 2;  // 2 KV heads, key and value, fp16

/// One group of all tokens, in memory: what a system without flash has.
IoPlan in_memory_plan() {
  IoPlan plan{"test", tiny_model().kv_kinds(), kPrefillTokens, 4, 0, {}};
  LayerPlan& layer = plan.layers.emplace_back();
  for (int step = 0; step < 4; ++step) add_step(layer, {}, {}, 10);
  layer.dram.entries_bytes = (kPrefillTokens + 4) * kEntryBytes;
  layer.dram.cache_bytes = kPrefillTokens * kEntryBytes;
  return plan;
}

/// Every layer writes `pieces` ranges of `bytes`, the last of which needs the whole prompt.
IoPlan writing_plan(std::uint64_t bytes, std::int64_t pieces = 1) {
  IoPlan plan = in_memory_plan();
  LayerPlan& layer = plan.layers.front();
  layer.dram.cache_bytes = 0;
  for (std::int64_t piece = 1; piece <= pieces; ++piece) {
    layer.io.prompt_writes.push_back({layer.io.region_bytes, bytes});
    layer.io.prompt_ready.push_back(kPrefillTokens * piece / pieces);
    layer.io.region_bytes += bytes;
  }
  layer.io.prompt_write_bytes = layer.io.region_bytes;
  return plan;
}

Prefill prefill_of(const IoPlan& plan, const PlatformSpec& platform, const DeviceSpec& device,
                   std::int64_t chunk_tokens = 1 << 20, std::int64_t batch = 1) {
  TimeOptions options;
  options.batch = batch;
  options.prefill_chunk_tokens = chunk_tokens;
  return time_plan(plan, tiny_model(), platform, device, PartConfig<Pipeline>::by_name("serial"),
                   options)
      .prefill;
}

TEST(Prefill, ComputeOfADenseModelByHand) {
  // 2 operations per weight and token, 4 per query element and token attended to; the LM head runs
  // once. 1 GFLOP/s is 1 ns per operation.
  const SimTime layer = 10'000 + 2 * kLayerWeights * kPrefillTokens +
                        4 * kQueryElements * (kPrefillTokens * (kPrefillTokens + 1) / 2);
  const Prefill prefill = prefill_of(in_memory_plan(), tiny_platform(), test::flash());
  EXPECT_EQ(prefill.compute_ns, kModelLayers * layer + 2 * kHeadWeights);
  // Chunks add their overheads, and nothing else where arithmetic binds.
  const Prefill chunked = prefill_of(in_memory_plan(), tiny_platform(), test::flash(), 100);
  EXPECT_EQ(chunked.compute_ns - prefill.compute_ns, kModelLayers * 9 * 10'000);
  // As many tokens in a batch, which share no attention.
  const Prefill batch = prefill_of(in_memory_plan(), tiny_platform(), test::flash(), 1 << 20, 3);
  EXPECT_EQ(batch.compute_ns,
            kModelLayers * (3 * (layer - 10'000) + 10'000) + 3 * 2 * kHeadWeights);
}

TEST(Prefill, InMemoryTheFirstTokenWaitsForComputeAlone) {
  for (const std::int64_t chunk : {64, 512, 4096}) {
    const Prefill prefill = prefill_of(in_memory_plan(), tiny_platform(), test::flash(), chunk);
    EXPECT_EQ(prefill.ttft_ns, prefill.compute_ns);
    EXPECT_EQ(prefill.index_ns, 0);
    EXPECT_EQ(prefill.busy_write_ns, 0);
    EXPECT_EQ(prefill.write_bytes, 0);
    EXPECT_EQ(prefill.flash_write_bytes, 0);
  }
}

TEST(Prefill, AChunkOfOneTokenIsADecodeStep) {
  const ModelSpec model = tiny_model();
  const PlatformSpec platform = tiny_platform();
  for (const std::int64_t position : {0, 1, 9, 500}) {
    const double attended = static_cast<double>(position + 1);
    const LayerCompute step =
        layer_compute(model, platform,
                      {.attended_tokens = attended,
                       .attended_bytes = attended * static_cast<double>(kEntryBytes)});
    const ChunkCompute chunk = chunk_compute(model, platform, {.begin = position});
    EXPECT_EQ(chunk.ns, step.project_ns + step.attend_ns);
    EXPECT_EQ(chunk.dram_bytes, step.dram_bytes);
  }
}

TEST(Prefill, AWindowBoundsWhatAChunkAttendsTo) {
  const ModelSpec model = tiny_model();
  const PlatformSpec platform = without_overheads(1e9);
  const auto ns = [&](std::int64_t begin, std::int64_t tokens, std::int64_t window) {
    return chunk_compute(model, platform,
                         {.begin = begin, .tokens = tokens, .sliding_window = window})
        .ns;
  };
  const SimTime attended = ns(0, 100, 10) - 2 * kLayerWeights * 100;
  EXPECT_EQ(attended, 4 * kQueryElements * (10 * 11 / 2 + 90 * 10));
  EXPECT_EQ(ns(50, 10, 10), ns(900, 10, 10));
  EXPECT_LT(ns(50, 10, 10), ns(50, 10, 0));
}

// With hardly any computation, the prompt takes as long as its writes, at the rate that binds.
TEST(Prefill, WritesRunAtTheRateOfTheLinkOrOfTheProgramsWhicheverBinds) {
  constexpr std::uint64_t kBytes = 64 << 20;
  const double total = 4.0 * kBytes;
  const PlatformSpec platform = without_overheads(1e18);
  const Prefill by_link = prefill_of(writing_plan(kBytes), platform,
                                     test::flash({{"link_mb_s", "100"}, {"program_us", "100"}}));
  test::expect_close("writes bound by the link, s", seconds(by_link.ttft_ns), total / 100e6);
  // 8 dies program 32 KiB in 4 ms: 65.5 MB/s. The last 1 MiB stays in the buffer.
  const Prefill by_program = prefill_of(
      writing_plan(kBytes), platform, test::flash({{"link_mb_s", "400"}, {"program_us", "4000"}}));
  test::expect_close("writes bound by programs, s", seconds(by_program.ttft_ns),
                     (total - (1 << 20)) / (8 * 32768 / 4e-3));
  EXPECT_EQ(by_link.write_bytes, std::llround(total));
  EXPECT_EQ(by_link.flash_write_bytes, std::llround(total));
  // All computation but the first layer's runs while the device writes.
  EXPECT_LT(by_link.busy_write_ns - by_link.exposed_write_ns, by_link.compute_ns);
  EXPECT_GE(by_link.busy_write_ns - by_link.exposed_write_ns, by_link.compute_ns / 2);
}

DeviceSpec one_by_one(SimTime command_ns) {
  return DeviceSpec::parse(ConfigNode::parse(
      R"({"name": "test", "title": "test", "part": "one_by_one", "command_ns": )" +
          std::to_string(command_ns) + "}",
      "test.json"));
}

TEST(Prefill, OnlyTheLastLayersWritesShowWhereComputeIsLonger) {
  // A layer takes 2 x 40960 x 1000 ns and more; a write half of that.
  const PlatformSpec platform = without_overheads(1e9);
  const Prefill none = prefill_of(in_memory_plan(), platform, one_by_one(0));
  const SimTime write = 40'000'000;
  const Prefill prefill = prefill_of(writing_plan(4096), platform, one_by_one(write));
  EXPECT_EQ(prefill.compute_ns, none.compute_ns);
  EXPECT_EQ(prefill.busy_write_ns, 4 * write);
  // The LM head hides a little of the last one.
  EXPECT_EQ(prefill.exposed_write_ns, write - 2 * kHeadWeights);
  EXPECT_EQ(prefill.ttft_ns, prefill.compute_ns + prefill.exposed_write_ns);
}

TEST(Prefill, WhereWritesAreLongerTheyFollowTheFirstLayer) {
  const PlatformSpec platform = without_overheads(1e9);
  const SimTime layer = 2 * kLayerWeights * kPrefillTokens +
                        4 * kQueryElements * (kPrefillTokens * (kPrefillTokens + 1) / 2);
  const SimTime write = 3 * layer;
  const Prefill prefill = prefill_of(writing_plan(4096), platform, one_by_one(write));
  EXPECT_EQ(prefill.ttft_ns, layer + 4 * write);
  EXPECT_EQ(prefill.busy_write_ns, 4 * write);
}

TEST(Prefill, RangesThatNeedFewerTokensAreWrittenSooner) {
  const PlatformSpec platform = without_overheads(1e9);
  const SimTime write = 10'000'000;
  const Prefill whole = prefill_of(writing_plan(4096, 1), platform, one_by_one(10 * write), 100);
  const Prefill pieces = prefill_of(writing_plan(4096, 10), platform, one_by_one(write), 100);
  EXPECT_EQ(whole.busy_write_ns, pieces.busy_write_ns);
  EXPECT_LT(pieces.exposed_write_ns, whole.exposed_write_ns);
  EXPECT_GE(pieces.exposed_write_ns, write - 2 * kHeadWeights);
}

TEST(Prefill, TheIndexIsComputedOncePerLayerBeforeItsWrites) {
  const PlatformSpec platform = without_overheads(1e9);
  IoPlan plan = writing_plan(4096);
  plan.layers.front().prompt = {.flops = 3000, .square_flops = 7000, .bytes = 100};
  const SimTime write = 40'000'000;
  const Prefill prefill = prefill_of(plan, platform, one_by_one(write), 100);
  EXPECT_EQ(prefill.index_ns, kModelLayers * 10'000);
  const Prefill without = prefill_of(writing_plan(4096), platform, one_by_one(write), 100);
  EXPECT_EQ(prefill.compute_ns, without.compute_ns);
  EXPECT_EQ(prefill.ttft_ns, without.ttft_ns + prefill.index_ns);
  EXPECT_EQ(prefill_of(plan, platform, one_by_one(write), 100, 2).index_ns, 2 * prefill.index_ns);
}

TEST(Prefill, SimilaritiesAreTrafficWhereThePlatformStoresThem) {
  PlatformSpec platform = without_overheads(1e9);
  IoPlan plan = writing_plan(4096);
  plan.layers.front().prompt = {.flops = 3000, .square_flops = 7000, .similarities = 500};
  const DeviceSpec device = one_by_one(40'000'000);
  const SimTime fused = prefill_of(plan, platform, device).index_ns;
  platform.similarity_bytes = 4;
  // 2,000 bytes per layer: more time than 10,000 operations take, where DRAM is that slow.
  platform.dram_bytes_s = 1e8;
  EXPECT_EQ(fused, kModelLayers * 10'000);
  EXPECT_EQ(prefill_of(plan, platform, device).index_ns, kModelLayers * 20'000);
  EXPECT_EQ(prefill_of(plan, platform, device, 100, 3).index_ns, 3 * kModelLayers * 20'000);
}

TEST(Prefill, CountsWhatWaitsInMemory) {
  const std::int64_t states = kPrefillTokens * 64 * 2;
  const std::int64_t entries = kPrefillTokens * kEntryBytes;
  const PlatformSpec platform = without_overheads(1e9);
  // Nothing is slow: a layer's entries, the states of the whole prompt between layers, and the
  // layer before, whose writes begin as this layer does.
  EXPECT_EQ(prefill_of(writing_plan(4096), platform, one_by_one(0)).dram_bytes,
            states + entries + 4096);
  // Writes that do not come to an end before the last layer: all that was computed waits.
  EXPECT_EQ(prefill_of(writing_plan(4096), platform, one_by_one(1'000'000'000)).dram_bytes,
            states + entries + 3 * 4096);
  // In memory everything stays, and a chunk at a time passes through all layers.
  EXPECT_EQ(prefill_of(in_memory_plan(), platform, one_by_one(0), 100).dram_bytes,
            kModelLayers * entries + 100 * 64 * 2);
}

TEST(Prefill, AScheduleOfItTakesTheSameTime) {
  TimeOptions options;
  Schedule schedule;
  options.prefill_chunk_tokens = 100;
  options.prefill_schedule = &schedule;
  const DeviceSpec device = test::preset("sd_a2");
  const IoPlan plan = writing_plan(1 << 20, 10);
  const Prefill prefill = time_plan(plan, tiny_model(), tiny_platform(), device,
                                    PartConfig<Pipeline>::by_name("layer_prefetch"), options)
                              .prefill;
  EXPECT_EQ(std::ssize(schedule.commands()), prefill.write_commands);
  const ScheduleMeasurement alone = time_schedule(schedule, device);
  ASSERT_EQ(alone.steps.size(), 1u);
  EXPECT_EQ(alone.steps.front().latency_ns, prefill.ttft_ns);
  EXPECT_EQ(alone.steps.front().compute_ns, prefill.compute_ns + prefill.index_ns);
}

TEST(Prefill, ChangesNoStepUnlessTheyFollowIt) {
  const IoPlan plan = [] {
    IoPlan made = writing_plan(8 << 20);
    LayerPlan& layer = made.layers.front();
    layer.io.writes.clear();
    layer.io.write_begin = {0};
    for (int step = 0; step < 4; ++step) {
      layer.io.writes.push_back({static_cast<std::uint64_t>(step) << 20, 1 << 20});
      layer.io.write_begin.push_back(step + 1);
    }
    return made;
  }();
  const auto time = [&](std::int64_t chunk, bool after) {
    TimeOptions options;
    options.prefill_chunk_tokens = chunk;
    options.after_prefill = after;
    return time_plan(plan, tiny_model(), tiny_platform(), test::flash({{"program_us", "20000"}}),
                     PartConfig<Pipeline>::by_name("serial"), options);
  };
  const Timing without = time(0, false);
  EXPECT_FALSE(without.prefill.known());
  const Timing with = time(100, false);
  EXPECT_TRUE(with.prefill.known());
  const Timing after = time(100, true);
  SimTime latency = 0;
  SimTime latency_after = 0;
  for (std::size_t i = 0; i < without.steps.size(); ++i) {
    EXPECT_EQ(with.steps[i].latency_ns, without.steps[i].latency_ns);
    EXPECT_EQ(with.steps[i].busy_io_ns, without.steps[i].busy_io_ns);
    EXPECT_EQ(after.steps[i].compute_ns, without.steps[i].compute_ns);
    latency += without.steps[i].latency_ns;
    latency_after += after.steps[i].latency_ns;
  }
  EXPECT_EQ(with.flash_write_bytes, without.flash_write_bytes);
  EXPECT_GT(latency_after, latency);  // the buffer is full
  EXPECT_EQ(after.prefill.ttft_ns, with.prefill.ttft_ns);
}

TEST(Prefill, ATimelineShowsItAndChangesNothing) {
  const IoPlan plan = writing_plan(4096, 10);
  Timeline timeline(1);
  TimeOptions options;
  options.prefill_chunk_tokens = 100;
  options.timeline = &timeline;
  const Timing shown = time_plan(plan, tiny_model(), tiny_platform(), one_by_one(1000),
                                 PartConfig<Pipeline>::by_name("serial"), options);
  EXPECT_EQ(shown.prefill.ttft_ns,
            prefill_of(plan, tiny_platform(), one_by_one(1000), 100).ttft_ns);
  SimTime computed = 0;
  SimTime written = 0;
  for (const Timeline::Event& event : timeline.prefill_events()) {
    (event.lane == Timeline::Lane::kCompute ? computed : written) += event.duration;
  }
  EXPECT_EQ(computed, shown.prefill.compute_ns);
  EXPECT_EQ(written, kModelLayers * 10 * 1000);
  const std::vector<CellTimeline> cells{{"cell", timeline}};
  EXPECT_NE(trace_event_json(cells).find("prefill writes"), std::string::npos);
}

// Two reads of every layer start together and are served one after the other.
TEST(CommandLatencies, AreNearestRanksOfSingleCommands) {
  IoPlan plan = in_memory_plan();
  LayerPlan& layer = plan.layers.front();
  for (std::uint64_t step = 0; step < 4; ++step) {
    layer.io.reads.push_back({0, 4096});
    layer.io.reads.push_back({8192, 4096});
    layer.io.read_begin[step + 1] = static_cast<std::int64_t>(2 * step + 2);
    layer.accounting.missed_bytes[step] = 8192;
  }
  layer.io.region_bytes = 1 << 14;
  const Timing timing = time_plan(plan, tiny_model(), tiny_platform(), one_by_one(700),
                                  PartConfig<Pipeline>::by_name("serial"), {});
  EXPECT_EQ(timing.reads.commands, 4 * kModelLayers * 2);
  EXPECT_EQ(timing.reads.p50_ns, 700);
  EXPECT_EQ(timing.reads.p99_ns, 1400);
  EXPECT_EQ(timing.reads.p999_ns, 1400);
  EXPECT_EQ(timing.writes.commands, 0);
}

}  // namespace
}  // namespace kvreplay
