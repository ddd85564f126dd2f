#include "sim/time/known_prefills.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/parallel.hpp"
#include "sim/time/time_plan.hpp"
#include "sim/time/timing_bytes.hpp"
#include "tests/devices/flash/flash_spec.hpp"
#include "tests/sim/sim_specs.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kPlanPrompt = 1000;

/// A layer that writes its prompt in ten ranges and reads a little, and one that attends in full.
IoPlan two_layer_plan() {
  IoPlan plan{"test", tiny_model().kv_kinds(), kPlanPrompt, 4, 1, {}};
  plan.layers.resize(2);
  for (LayerPlan& layer : plan.layers) layer.dram.entries_bytes = 300'000;
  LayerPlan& full = plan.layers[0];
  full.full_attention = true;
  LayerPlan& layer = plan.layers[1];
  for (std::uint64_t piece = 0; piece < 10; ++piece) {
    layer.io.prompt_writes.push_back({piece * 65536, 65536});
    layer.io.prompt_ready.push_back(static_cast<std::int64_t>(100 * (piece + 1)));
  }
  layer.io.region_bytes = 2 << 20;
  layer.prompt = {.flops = 100'000, .square_flops = 5'000, .bytes = 1'000};
  layer.dram.buffered_bytes = 5'000;
  layer.dram.index_bytes = 9'000;
  for (int step = 0; step < 4; ++step) {
    add_step(full, {}, {}, 1000);
    add_step(layer, {{65536, 4096}}, {{1 << 20, 4096}}, 100);
  }
  return plan;
}

struct PrefillCase {
  IoPlan plan = two_layer_plan();
  std::string pipeline = "serial";
  TimeOptions options{.prefill_chunk_tokens = 100};
};

std::string timed(const PrefillCase& at, const ModelSpec& model, const PlatformSpec& platform,
                  const DeviceSpec& device, KnownPrefills* prefills) {
  return to_bytes(time_plan(at.plan, model, platform, device,
                            PartConfig<Pipeline>::by_name(at.pipeline), at.options, prefills));
}

TEST(KnownPrefills, AreTakenOnlyWhereTheyAreTheSame) {
  // Each changes one thing that a prefill depends on, or that it does not.
  const std::vector<std::function<void(PrefillCase&)>> changes{
      [](PrefillCase&) {},
      [](PrefillCase& at) { at.options.seed = 7; },
      [](PrefillCase& at) { at.options.timed_steps = 2; },
      [](PrefillCase& at) { at.plan.layers[1].io.reads.front().bytes = 8192; },
      [](PrefillCase& at) { at.options.batch = 2; },
      [](PrefillCase& at) {
        at.options.batch = 2;
        at.options.shared_prefix = true;
      },
      [](PrefillCase& at) { at.options.prefill_chunk_tokens = 300; },
      [](PrefillCase& at) { at.options.after_prefill = true; },
      [](PrefillCase& at) { at.pipeline = "two_stage"; },
      [](PrefillCase& at) { at.plan.prompt_tokens = 1001; },
      [](PrefillCase& at) { at.plan.full_attention_layers = 0; },
      [](PrefillCase& at) { at.plan.full_attention_layers = 2; },
      [](PrefillCase& at) { at.plan.layers[0].sliding_window = 200; },
      [](PrefillCase& at) { at.plan.layers[0].dram.entries_bytes += 1'000'000; },
      [](PrefillCase& at) { at.plan.layers[1].sliding_window = 200; },
      [](PrefillCase& at) { at.plan.layers[1].prompt.flops += 1'000'000; },
      [](PrefillCase& at) { at.plan.layers[1].prompt.square_flops += 1'000'000; },
      [](PrefillCase& at) { at.plan.layers[1].prompt.bytes += 10'000'000; },
      [](PrefillCase& at) { at.plan.layers[1].prompt.factorise_flops += 1'000'000; },
      [](PrefillCase& at) { at.plan.layers[1].prompt.similarities += 10'000'000; },
      [](PrefillCase& at) { at.plan.layers[1].dram.buffered_bytes += 1'000'000; },
      [](PrefillCase& at) { at.plan.layers[1].dram.index_bytes += 1'000'000; },
      [](PrefillCase& at) { at.plan.layers[1].io.prompt_writes.back().bytes /= 2; },
      [](PrefillCase& at) { at.plan.layers[1].io.prompt_writes.back().offset += 32768; },
      [](PrefillCase& at) { at.plan.layers[1].io.prompt_ready.front() = 200; },
      [](PrefillCase& at) { at.plan.layers[1].io.region_bytes = 3'500'000; },
      [](PrefillCase& at) {
        at.plan.layers[1].io.prompt_writes.clear();
        at.plan.layers[1].io.prompt_ready.clear();
      },
      [](PrefillCase& at) {
        at.plan.layers[1].io.prompt_writes.clear();
        at.plan.layers[1].io.prompt_ready.clear();
        at.plan.layers[1].dram.cache_bytes = 1'000'000;
      },
  };
  const std::vector<ModelSpec> models{tiny_model()};
  PlatformSpec storing = without_overheads(1e9);
  storing.similarity_bytes = 4;
  const std::vector<PlatformSpec> platforms{tiny_platform(), without_overheads(1e9), storing};
  const std::vector<DeviceSpec> devices{test::flash(), test::flash({{"link_mb_s", "20"}})};
  KnownPrefills prefills;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t change = 0; change < changes.size(); ++change) {
      PrefillCase at;
      changes[change](at);
      for (const PlatformSpec& platform : platforms) {
        for (const DeviceSpec& device : devices) {
          ASSERT_EQ(timed(at, models.front(), platform, device, &prefills),
                    timed(at, models.front(), platform, device, nullptr))
              << "change " << change << " in round " << round;
        }
      }
    }
  }
}

TEST(KnownPrefills, ServeSeveralThreads) {
  const ModelSpec model = tiny_model();
  const PlatformSpec platform = tiny_platform();
  const DeviceSpec device = test::flash();
  const std::string expected = timed({}, model, platform, device, nullptr);
  KnownPrefills prefills;
  std::vector<std::string> found(16);
  parallel_for(std::ssize(found), 4, [&](std::int64_t i) {
    found[static_cast<std::size_t>(i)] = timed({}, model, platform, device, &prefills);
  });
  for (const std::string& timing : found) EXPECT_EQ(timing, expected);
}

}  // namespace
}  // namespace kvreplay
