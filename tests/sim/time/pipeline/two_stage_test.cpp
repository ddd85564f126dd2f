#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/build_info.hpp"
#include "sim/replay/system.hpp"
#include "sim/time/compute_cost.hpp"
#include "sim/time/time_plan.hpp"
#include "tests/sim/sim_specs.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kSteps = 5;
constexpr std::int64_t kPrompt = 100;
constexpr double kAttended = 20;
constexpr std::int64_t kIndexBytes = 2000;
constexpr std::int64_t kCacheBytes = 3000;

/// Every step reads two ranges and, from its second on, one of the cache.
IoPlan plan_of(bool cache_paged) {
  IoPlan plan{"test", tiny_model().kv_kinds(), kPrompt, kSteps, 0, {}};
  LayerPlan& layer = plan.layers.emplace_back();
  layer.io.cache_paged = cache_paged;
  if (cache_paged) layer.io.cache_read_begin = {0};
  for (std::int64_t step = 0; step < kSteps; ++step) {
    add_step(layer, {{0, 4096}, {8192, 4096}}, {}, kAttended);
    layer.compute.score_flops.back() = 1000;
    layer.compute.score_bytes.back() = kIndexBytes;
    if (!cache_paged) continue;
    if (step > 0) layer.io.cache_reads.push_back({1 << 15, kCacheBytes});
    layer.io.cache_read_begin.push_back(std::ssize(layer.io.cache_reads));
  }
  layer.io.region_bytes = 1 << 17;
  layer.dram.entries_bytes = (kPrompt + kSteps) * 128;
  layer.dram.cache_bytes = kCacheBytes;
  layer.dram.index_bytes = kIndexBytes;
  return plan;
}

/// A device that serves one command after the other (registered in time_test.cpp).
Timing time_on(const IoPlan& plan, SimTime command_ns, const std::string& pipeline,
               const TimeOptions& options = {}) {
  const DeviceSpec device = DeviceSpec::parse(ConfigNode::parse(
      R"({"name": "test", "title": "test", "part": "one_by_one", "command_ns": )" +
          std::to_string(command_ns) + "}",
      "test.json"));
  return time_plan(plan, tiny_model(), tiny_platform(), device,
                   PartConfig<Pipeline>::parse(ConfigNode::parse(pipeline, "test.json")), options);
}

/// The schedule written out.
SimTime latency(SimTime command_ns, bool index_on_flash, bool cached) {
  const LayerCompute layer = layer_compute(tiny_model(), tiny_platform(),
                                           {.batch = 1,
                                            .score_flops = 1000,
                                            .score_bytes = kIndexBytes,
                                            .attended_tokens = kAttended,
                                            .attended_bytes = kAttended * 128});
  const SimTime query_ns = layer.project_ns * 6 / 10;  // 6 of 6 + 2 + 2 heads
  SimTime now = 0;
  SimTime device_free = 0;
  const auto issue = [&](int commands) {
    if (commands > 0) device_free = std::max(device_free, now) + commands * command_ns;
    return commands > 0 ? device_free : now;
  };
  SimTime cache_here = issue(cached ? 1 : 0);
  for (int i = 0; i < 4; ++i) {
    const SimTime index_here = issue(index_on_flash ? 1 : 0);
    now = std::max(now + query_ns, index_here) + layer.score_ns;
    const SimTime groups_here = issue(2);
    now = std::max({now + layer.project_ns - query_ns, groups_here, cache_here});
    if (i < 3) cache_here = issue(cached ? 1 : 0);
    now += layer.attend_ns;
  }
  return now + head_compute(tiny_model(), tiny_platform(), 1);
}

TEST(TwoStage, OverlapsAsItsScheduleSays) {
  for (const SimTime command_ns : {0, 1, 3'000, 10'000, 40'000, 1'000'000}) {
    for (const bool paged : {false, true}) {
      for (const bool index_on_flash : {false, true}) {
        const Timing timing = time_on(plan_of(paged), command_ns,
                                      std::string(R"({"part": "two_stage", "index_on_flash": )") +
                                          (index_on_flash ? "true}" : "false}"));
        ASSERT_EQ(std::ssize(timing.steps), kSteps);
        for (std::size_t step = 0; step < kSteps; ++step) {
          const bool cached = paged && step > 0;
          EXPECT_EQ(timing.steps[step].latency_ns, latency(command_ns, index_on_flash, cached));
          EXPECT_EQ(timing.steps[step].read_requests,
                    4 * (2 + (index_on_flash ? 1 : 0) + (cached ? 1 : 0)));
          EXPECT_EQ(timing.steps[step].read_bytes,
                    4 * (8192 + (index_on_flash ? 2048 : 0) + (cached ? 3072 : 0)))
              << "whole blocks of 512 bytes";
        }
      }
    }
  }
}

TEST(TwoStage, DramHoldsTwoLayersOfACacheThatIsPaged) {
  for (const std::int64_t batch : {1, 3}) {
    const TimeOptions options{.batch = batch};
    const DramUse flash = time_on(plan_of(true), 10, R"({"part": "two_stage"})", options).dram;
    EXPECT_EQ(flash.cache_bytes, batch * 2 * kCacheBytes);
    EXPECT_EQ(flash.index_bytes, batch * kIndexBytes);
    const DramUse memory = time_on(plan_of(false), 10, R"({"part": "serial"})", options).dram;
    EXPECT_EQ(memory.cache_bytes, batch * 4 * kCacheBytes);
    EXPECT_EQ(memory.index_bytes, batch * 4 * kIndexBytes);
  }
}

ConfigNode dynakv() {
  return ConfigNode::load(source_folder() + "/configs/systems/dynakv.json");
}

TEST(TwoStage, ACacheThatIsPagedNeedsAPipelineThatReadsIt) {
  EXPECT_NO_THROW((void)SystemSpec::parse(dynakv(), "dynakv"));
  const ConfigNode serial = dynakv().with("pipeline", R"({"part": "serial"})");
  const std::string message = user_error_of([&] { (void)SystemSpec::parse(serial, "dynakv"); });
  EXPECT_THAT(message, testing::HasSubstr("paged_by_layer"));
  EXPECT_THAT(message, testing::HasSubstr("two_stage"));
  EXPECT_NO_THROW((void)SystemSpec::parse(serial.with("cache.paged_by_layer", "false"), "dynakv"));
}

TEST(TwoStage, ALayoutByCoRetrievalNeedsTheWindow) {
  for (const char* layout : {"dual_head", "correlated"}) {
    const ConfigNode none = dynakv()
                                .with("layout", R"({"part": ")" + std::string(layout) + R"("})")
                                .with("stream.window_queries", "0");
    EXPECT_THAT(user_error_of([&] { (void)SystemSpec::parse(none, "dynakv"); }),
                testing::HasSubstr("window_queries"));
  }
}

}  // namespace
}  // namespace kvreplay
