#include "sim/time/time_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/engine/server.hpp"
#include "sim/time/compute_cost.hpp"
#include "tests/devices/flash/flash_spec.hpp"
#include "tests/sim/sim_specs.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

/// Serves one command after the other, each for a fixed time, and records them.
class OneByOne final : public Device {
 public:
  OneByOne(SimTime command_ns, const Context& context)
      : command_ns_(command_ns), server_(context.simulation) {}

  void submit(const IoCommand& command, EventHandler& done, std::uint64_t argument) override {
    commands.push_back(command);
    if (command.write) {
      counters_.host_write_bytes += command.bytes;
    } else {
      counters_.host_read_bytes += command.bytes;
      counters_.flash_read_bytes += 2 * command.bytes;
    }
    server_.use(command_ns_, done, argument);
  }
  [[nodiscard]] DeviceLimits limits() const override { return {512, 1 << 22, 32}; }
  [[nodiscard]] DeviceCounters counters() const override { return counters_; }

  inline static std::vector<IoCommand> commands;

 private:
  SimTime command_ns_;
  Server server_;
  DeviceCounters counters_;
};

const Registered<Device> kOneByOne{{
    .name = "one_by_one",
    .help = "for tests",
    .source = "test",
    .parameters = {integer_parameter("command_ns", "ns", 1000, {0, 1e9}, "of every command")},
    .make =
        [](const Arguments& arguments, const Device::Context& context) {
          return std::make_unique<OneByOne>(arguments.integer("command_ns"), context);
        },
}};

DeviceSpec device(SimTime command_ns) {
  return DeviceSpec::parse(ConfigNode::parse(
      R"({"name": "test", "title": "test", "part": "one_by_one", "command_ns": )" +
          std::to_string(command_ns) + "}",
      "test.json"));
}

constexpr std::int64_t kSteps = 6;
constexpr std::int64_t kPrompt = 100;
constexpr double kAttended = 20;

/// Every step reads two extents that do not touch and, if requested, writes one.
IoPlan plan_of(bool writes) {
  IoPlan plan{"test", tiny_model().kv_kinds(), kPrompt, kSteps, 0, {}};
  LayerPlan& layer = plan.layers.emplace_back();
  for (std::int64_t step = 0; step < kSteps; ++step) {
    add_step(layer, {{0, 4096}, {8192, 4096}},
             writes ? std::vector<Extent>{{1 << 16, 512}} : std::vector<Extent>{}, kAttended);
    layer.compute.score_flops.back() = 1000;
  }
  layer.io.region_bytes = 1 << 17;
  layer.dram.entries_bytes = (kPrompt + kSteps) * 128;
  return plan;
}

IoPlan without_reads(IoPlan plan) {
  LayerPlan& layer = plan.layers.front();
  layer.io.reads.clear();
  std::fill(layer.io.read_begin.begin(), layer.io.read_begin.end(), 0);
  std::fill(layer.accounting.missed_bytes.begin(), layer.accounting.missed_bytes.end(), 0);
  layer.accounting.hit_bytes = layer.accounting.requested_bytes;
  return plan;
}

Timing time_on(const IoPlan& plan, SimTime command_ns, const std::string& pipeline,
               TimeOptions options = {}) {
  OneByOne::commands.clear();
  return time_plan(plan, tiny_model(), tiny_platform(), device(command_ns),
                   PartConfig<Pipeline>::by_name(pipeline), options);
}

LayerCompute layer_times() {
  return layer_compute(tiny_model(), tiny_platform(),
                       {.batch = 1,
                        .score_flops = 1000,
                        .score_bytes = 0,
                        .attended_tokens = kAttended,
                        .attended_bytes = kAttended * 128});
}
SimTime head_time() {
  return head_compute(tiny_model(), tiny_platform(), 1);
}
SimTime step_compute() {
  const LayerCompute layer = layer_times();
  return 4 * (layer.project_ns + layer.score_ns + layer.attend_ns) + head_time();
}

TEST(Time, SerialWaitsForEveryRead) {
  for (const SimTime command_ns : {0, 1, 777, 50'000, 2'000'000}) {
    const Timing timing = time_on(plan_of(false), command_ns, "serial");
    ASSERT_EQ(std::ssize(timing.steps), kSteps);
    for (const StepTiming& step : timing.steps) {
      EXPECT_EQ(step.compute_ns, step_compute());
      EXPECT_EQ(step.exposed_io_ns, 4 * 2 * command_ns);
      EXPECT_EQ(step.busy_io_ns, step.exposed_io_ns);
      EXPECT_EQ(step.latency_ns, step.compute_ns + step.exposed_io_ns);
      EXPECT_EQ(step.read_bytes, 4 * 8192);
      EXPECT_EQ(step.read_requests, 4 * 2);
    }
    EXPECT_EQ(timing.missed_bytes, kSteps * 4 * 8192);
    EXPECT_EQ(timing.requested_bytes, timing.hit_bytes + timing.missed_bytes);
    EXPECT_EQ(timing.flash_read_bytes, 2 * timing.missed_bytes);
  }
}

TEST(Time, ReadsThatTouchAreRequestsOfTheirOwnWhereTheyAreNotMerged) {
  IoPlan plan = plan_of(false);
  LayerPlan::Io& io = plan.layers.front().io;
  for (std::size_t i = 1; i < io.reads.size(); i += 2) io.reads[i].offset = 4096;
  const auto requests = [&](bool merge) {
    io.merge_reads = merge;
    return time_on(plan, 777, "serial").steps.front().read_requests;
  };
  EXPECT_EQ(requests(true), 4);
  EXPECT_EQ(requests(false), 4 * 2);
}

TEST(Time, TheProcessorSpendsTimeOnReadsThatACacheKeepsAndOnWritingEntries) {
  PlatformSpec platform = tiny_platform();
  platform.cache_insert_ns = 100;
  platform.append_overhead_ns = 3000;
  IoPlan no_cache = plan_of(false);
  IoPlan cache = plan_of(false);
  cache.layers.front().dram.cache_bytes = 8192;
  for (const std::int64_t batch : {1, 3}) {
    const auto added_ns = [&](const IoPlan& plan) {
      const auto compute_ns = [&](const PlatformSpec& on) {
        return time_plan(plan, tiny_model(), on, device(777),
                         PartConfig<Pipeline>::by_name("serial"), {.batch = batch})
            .steps.front()
            .compute_ns;
      };
      return compute_ns(platform) - compute_ns(tiny_platform());
    };
    EXPECT_EQ(added_ns(no_cache), 0);
    EXPECT_EQ(added_ns(cache), 4 * batch * 2 * 100);
    EXPECT_EQ(added_ns(plan_of(true)), 4 * 3000);  // once per layer, whatever the batch
  }
}

/// The prefetch schedule written out, for a device that serves one layer's reads after the other's.
SimTime prefetch_latency(SimTime reads_ns, std::size_t depth) {
  const LayerCompute layer = layer_times();
  SimTime now = 0;
  SimTime device_free = 0;
  std::vector<SimTime> arrived;
  for (std::size_t i = 0; i < 4; ++i) {
    while (arrived.size() < std::min<std::size_t>(i + depth + 1, 4)) {
      now += layer.score_ns;
      device_free = std::max(device_free, now) + reads_ns;
      arrived.push_back(device_free);
    }
    now = std::max(now + layer.project_ns, arrived[i]) + layer.attend_ns;
  }
  return now + head_time();
}

TEST(Time, PrefetchOverlapsReadsWithTheLayerBefore) {
  for (const SimTime command_ns : {0, 1, 10'000, 30'000, 60'000, 2'000'000}) {
    for (const std::size_t depth : {1U, 2U, 9U}) {
      const auto pipeline = PartConfig<Pipeline>::parse(ConfigNode::parse(
          R"({"part": "layer_prefetch", "depth": )" + std::to_string(depth) + "}", "test"));
      const Timing timing = time_plan(plan_of(false), tiny_model(), tiny_platform(),
                                      device(command_ns), pipeline, {});
      for (const StepTiming& step : timing.steps) {
        EXPECT_EQ(step.latency_ns, prefetch_latency(2 * command_ns, depth));
        EXPECT_EQ(step.latency_ns, step.compute_ns + step.exposed_io_ns);
        EXPECT_EQ(step.compute_ns, step_compute());
        EXPECT_EQ(step.busy_io_ns, 4 * 2 * command_ns);
      }
    }
  }
}

TEST(Time, ComputationsBesideTransfersAreHandedOverAtTheirMeasuredTime) {
  PlatformSpec platform = tiny_platform();
  platform.kernels.emplace().hand_over.any = MeasuredKernel({{1, 1}, {2, 1}});
  const auto steps = [&](const char* pipeline) {
    return time_plan(plan_of(false), tiny_model(), platform, device(60'000),
                     PartConfig<Pipeline>::by_name(pipeline), {})
        .steps;
  };
  for (const StepTiming& step : steps("serial")) EXPECT_EQ(step.compute_ns, step_compute());
  for (const StepTiming& step : steps("layer_prefetch")) {
    const SimTime handed_over = step.compute_ns - step_compute();
    EXPECT_GE(handed_over, 3 * 1000) << "beside the reads of a next layer";
    EXPECT_EQ(handed_over % 1000, 0);
    EXPECT_EQ(step.latency_ns, step.compute_ns + step.exposed_io_ns);
  }
}

TEST(Time, PrefetchIsNeverSlowerThanSerial) {
  for (const bool writes : {false, true}) {
    for (const SimTime command_ns : {0, 100, 10'000, 60'000, 1'000'000}) {
      const Timing serial = time_on(plan_of(writes), command_ns, "serial");
      const Timing prefetch = time_on(plan_of(writes), command_ns, "layer_prefetch");
      for (std::size_t step = 0; step < serial.steps.size(); ++step) {
        EXPECT_LE(prefetch.steps[step].latency_ns, serial.steps[step].latency_ns);
      }
    }
  }
}

TEST(Time, NoReadsNoWaiting) {
  for (const char* pipeline : {"serial", "layer_prefetch"}) {
    const Timing timing = time_on(without_reads(plan_of(false)), 1'000'000, pipeline);
    for (const StepTiming& step : timing.steps) {
      EXPECT_EQ(step.latency_ns, step_compute());
      EXPECT_EQ(step.busy_io_ns, 0);
    }
    EXPECT_EQ(timing.hit_bytes, timing.requested_bytes);
    EXPECT_GT(timing.requested_bytes, 0);
  }
}

TEST(Time, WritesAreBehindTheComputationUntilTheyAreTheBottleneck) {
  const IoPlan plan = without_reads(plan_of(true));
  const Timing fast = time_on(plan, 1000, "serial");
  for (const StepTiming& step : fast.steps) {
    EXPECT_EQ(step.latency_ns, step_compute());
    EXPECT_EQ(step.write_requests, 4);
    EXPECT_EQ(step.write_bytes, 4 * 512);
  }
  // The writes are slower than the rest of the step, so a step takes the time of its four writes.
  const SimTime slow_ns = step_compute();
  const Timing slow = time_on(plan, slow_ns, "serial");
  EXPECT_EQ(slow.steps.front().latency_ns, step_compute());
  EXPECT_EQ(slow.steps.back().latency_ns, 4 * slow_ns);
}

TEST(Time, EverySequenceAndLayerHasARegionOfItsOwn) {
  IoPlan plan{"test", tiny_model().kv_kinds(), kPrompt, 1, 0, {}};
  for (const std::uint64_t bytes : {1'000'000U, 3'000'000U}) {
    LayerPlan& layer = plan.layers.emplace_back();
    add_step(layer, {{0, bytes}}, {}, kAttended);
    layer.io.region_bytes = bytes;
    layer.dram.entries_bytes = 1000;
    layer.io.prompt_write_bytes = 5;
  }
  plan.full_attention_layers = 1;
  for (const char* pipeline : {"serial", "layer_prefetch"}) {
    const Timing timing = time_on(plan, 100, pipeline, {.batch = 3, .timed_steps = 0});
    // Target layers 1, 2, 3 follow the recorded 1, 0, 1.
    std::uint64_t bytes = 0;
    std::vector<Extent> extents;
    for (const IoCommand& command : OneByOne::commands) {
      extents.push_back({command.offset, command.bytes});
      bytes += command.bytes;
    }
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < extents.size(); ++i) {
      EXPECT_GE(extents[i].offset, extents[i - 1].end());
    }
    EXPECT_GE(bytes, 3U * (2 * 3'000'000 + 1'000'000));
    EXPECT_EQ(timing.missed_bytes, 3 * (2 * 3'000'000 + 1'000'000));
    EXPECT_EQ(timing.prompt_write_bytes, 3 * 3 * 5);
    EXPECT_EQ(timing.steps.size(), 1U);
  }
}

/// Step k reads k + 1 blocks.
IoPlan growing_plan(std::int64_t steps) {
  IoPlan plan{"test", tiny_model().kv_kinds(), kPrompt, steps, 0, {}};
  LayerPlan& layer = plan.layers.emplace_back();
  for (std::int64_t step = 0; step < steps; ++step) {
    add_step(layer, {{0, static_cast<std::uint64_t>(step + 1) * 512}}, {}, kAttended);
  }
  layer.io.region_bytes = static_cast<std::uint64_t>(steps + 1) * 512;
  layer.dram.entries_bytes = 1000;
  return plan;
}

TEST(Time, SequencesOfABatchFollowRotatedSteps) {
  const Timing timing =
      time_on(growing_plan(6), 10, "serial", {.batch = 2, .timed_steps = 0, .warm_up_steps = 2});
  ASSERT_EQ(timing.steps.size(), 4U);
  // Steps 2 to 5, beside 4, 5, 2, 3.
  for (std::size_t step = 0; step < 4; ++step) {
    const auto blocks = static_cast<std::int64_t>(step + 3 + (step + 2) % 4 + 3);
    EXPECT_EQ(timing.steps[step].read_bytes, 4 * 512 * blocks);
  }
}

TEST(Time, TimedStepsCoverTheSequenceEvenly) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const TimeOptions options{.timed_steps = 5, .warm_up_steps = 3, .seed = seed};
    const Timing timing = time_on(growing_plan(23), 10, "serial", options);
    ASSERT_EQ(timing.steps.size(), 5U);
    for (std::int64_t k = 0; k < 5; ++k) {
      const std::int64_t step =
          timing.steps[static_cast<std::size_t>(k)].read_bytes / (4 * 512) - 1;
      EXPECT_GE(step, 3 + 4 * k);
      EXPECT_LT(step, 3 + 4 * (k + 1));
    }
  }
}

TEST(Time, LayersWithFullAttentionAreInMemory) {
  IoPlan plan = plan_of(false);
  LayerPlan full;
  full.full_attention = true;
  full.dram.entries_bytes = plan.layers.front().dram.entries_bytes;
  for (std::int64_t step = 0; step < kSteps; ++step) add_step(full, {}, {}, 1);
  plan.layers.insert(plan.layers.begin(), full);
  plan.full_attention_layers = 3;
  plan.layers.back().dram.cache_bytes = 7;
  plan.layers.back().dram.fetched_bytes = 8192;

  const Timing timing = time_on(plan, 100, "layer_prefetch", {.batch = 2});
  EXPECT_EQ(timing.steps.front().read_bytes, 2 * 8192);
  EXPECT_EQ(timing.dram.full_attention_bytes, 2 * 3 * full.dram.entries_bytes);
  EXPECT_EQ(timing.dram.cache_bytes, 2 * 7);
  EXPECT_EQ(timing.dram.read_buffer_bytes, 2 * 2 * 8192);
  EXPECT_EQ(timing.dram.weights_bytes, tiny_model().weight_bytes());
  const double whole = kPrompt + 1 + (kSteps - 1) / 2.0;
  EXPECT_DOUBLE_EQ(timing.attended_tokens, (3 * whole + kAttended) / 4);
}

TEST(Time, RefusesWhatItCannotFollow) {
  EXPECT_NE(user_error_of([] {
              static_cast<void>(time_on(plan_of(false), 1, "serial", {.warm_up_steps = kSteps}));
            }).find("warm_up_steps"),
            std::string::npos);
  IoPlan full = plan_of(false);
  full.layers.front().full_attention = true;
  EXPECT_NE(
      user_error_of([&] { static_cast<void>(time_on(full, 1, "serial")); }).find("dense_layers"),
      std::string::npos);
  IoPlan larger = plan_of(false);
  larger.kinds.front().kv_heads *= 2;
  EXPECT_THROW(static_cast<void>(time_on(larger, 1, "serial")), std::logic_error);
}

PlatformSpec platform_with_power() {
  PlatformSpec platform = tiny_platform();
  platform.compute_power_w = 5;
  platform.waiting_power_w = 1;
  platform.dram_pj_bit = 4;
  platform.dram_idle_w = 0.5;
  return platform;
}

DeviceSpec device_with_power() {
  return test::flash(
      {{"sense_uj", "3"}, {"program_uj", "6"}, {"transfer_pj_bit", "25"}, {"idle_mw", "200"}});
}

Timing time_with_power(const IoPlan& plan, const PlatformSpec& platform, const DeviceSpec& device) {
  return time_plan(plan, tiny_model(), platform, device, PartConfig<Pipeline>::by_name("serial"),
                   {});
}

TEST(Energy, OfATinyPlanByHand) {
  const Timing timing = time_with_power(plan_of(false), platform_with_power(), device_with_power());
  double compute_ns = 0;
  double waiting_ns = 0;
  for (const StepTiming& step : timing.steps) {
    compute_ns += static_cast<double>(step.compute_ns);
    waiting_ns += static_cast<double>(step.exposed_io_ns);
  }
  EXPECT_GT(waiting_ns, 0);
  EXPECT_DOUBLE_EQ(timing.energy.compute_nj, 5 * compute_ns + 1 * waiting_ns);

  // Per layer, a step reads 20 tokens of 128 bytes and takes in 2 x 4096 bytes from flash. It also
  // reads the weights of 4 layers and of the head at 2 bytes each.
  const double bytes = 4 * (2 * (10240 + 6144 + 24576) + 20 * 128) + 2 * 64000 + 4 * 2 * 4096;
  EXPECT_DOUBLE_EQ(timing.energy.dram_nj,
                   0.004 * 8 * kSteps * bytes + 0.5 * (compute_ns + waiting_ns));

  // Each command takes one read unit of 4 KiB out of a page of 16 KiB. Both commands of a layer
  // touch one page, which is sensed once.
  const double pages = kSteps * 4;
  const double commands = 2 * pages;
  EXPECT_DOUBLE_EQ(timing.energy.flash_nj,
                   3000 * pages + 0.025 * 8 * 4096 * commands + 0.2 * (compute_ns + waiting_ns));
  EXPECT_DOUBLE_EQ(timing.energy.total_nj(),
                   timing.energy.compute_nj + timing.energy.dram_nj + timing.energy.flash_nj);
}

TEST(Energy, MoreBytesReadCostMore) {
  const Energy none =
      time_with_power(without_reads(plan_of(false)), platform_with_power(), device_with_power())
          .energy;
  const Energy some =
      time_with_power(plan_of(false), platform_with_power(), device_with_power()).energy;
  EXPECT_GT(some.compute_nj, none.compute_nj);  // it waits
  EXPECT_GT(some.dram_nj, none.dram_nj);
  EXPECT_GT(some.flash_nj, none.flash_nj);
}

TEST(Energy, ALongerStepCostsMoreIdleEnergy) {
  const DeviceSpec slow = test::flash({{"sense_uj", "3"},
                                       {"program_uj", "6"},
                                       {"transfer_pj_bit", "25"},
                                       {"idle_mw", "200"},
                                       {"command_latency_us", "1000"}});
  const Timing quick = time_with_power(plan_of(false), platform_with_power(), device_with_power());
  const Timing late = time_with_power(plan_of(false), platform_with_power(), slow);
  double more_ns = 0;
  for (std::size_t i = 0; i < late.steps.size(); ++i) {
    more_ns += static_cast<double>(late.steps[i].latency_ns - quick.steps[i].latency_ns);
  }
  EXPECT_GT(more_ns, 0);
  EXPECT_NEAR(late.energy.compute_nj - quick.energy.compute_nj, 1.0 * more_ns, 1e-3 * more_ns);
  EXPECT_NEAR(late.energy.dram_nj - quick.energy.dram_nj, 0.5 * more_ns, 1e-3 * more_ns);
  EXPECT_NEAR(late.energy.flash_nj - quick.energy.flash_nj, 0.2 * more_ns, 1e-3 * more_ns);
}

TEST(Energy, IsNotKnownWithoutFigures) {
  const Energy nothing = time_with_power(plan_of(true), tiny_platform(), test::flash()).energy;
  EXPECT_TRUE(std::isnan(nothing.compute_nj));
  EXPECT_TRUE(std::isnan(nothing.dram_nj));
  EXPECT_TRUE(std::isnan(nothing.flash_nj));
  const Energy flash_only =
      time_with_power(plan_of(true), tiny_platform(), device_with_power()).energy;
  EXPECT_GT(flash_only.flash_nj, 0);
  EXPECT_TRUE(std::isnan(flash_only.total_nj()));
}

}  // namespace
}  // namespace kvreplay
