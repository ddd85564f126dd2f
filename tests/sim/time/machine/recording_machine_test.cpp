// The recorded schedule of a pipeline equals the pipeline: timed alone, it takes the very same
// nanoseconds.

#include "sim/time/machine/recording_machine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/build_info.hpp"
#include "base/hash.hpp"
#include "base/output_file.hpp"
#include "base/random.hpp"
#include "devices/schedule/time_schedule.hpp"
#include "sim/time/time_plan.hpp"
#include "tests/sim/sim_specs.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kSteps = 12;
constexpr std::uint64_t kRegion = 1 << 18;

std::vector<Extent> random_extents(Random& random) {
  std::vector<Extent> extents(random.below(7));
  for (Extent& extent : extents) extent = {random.below(kRegion / 2), 1 + random.below(40'000)};
  coalesce(extents);
  return extents;
}

/// Two recorded layers. Each of their steps reads, writes and pages its cache at random; some do
/// nothing.
IoPlan random_plan(std::uint64_t seed, bool cache_paged) {
  Random random(seed);
  IoPlan plan{"random", tiny_model().kv_kinds(), 100, kSteps, 0, {}};
  for (int recorded = 0; recorded < 2; ++recorded) {
    LayerPlan& layer = plan.layers.emplace_back();
    layer.io.cache_paged = cache_paged;
    if (cache_paged) layer.io.cache_read_begin = {0};
    for (std::int64_t step = 0; step < kSteps; ++step) {
      add_step(layer, random_extents(random), random_extents(random), 20);
      layer.compute.score_flops.back() = 1000;
      layer.compute.score_bytes.back() = static_cast<std::int64_t>(random.below(30'000));
      if (!cache_paged) continue;
      const std::vector<Extent> paged = random_extents(random);
      layer.io.cache_reads.insert(layer.io.cache_reads.end(), paged.begin(), paged.end());
      layer.io.cache_read_begin.push_back(std::ssize(layer.io.cache_reads));
    }
    layer.io.region_bytes = kRegion;
    layer.dram.index_bytes = 30'000;
    layer.dram.entries_bytes = (100 + kSteps) * 128;
  }
  return plan;
}

DeviceSpec preset(const std::string& name) {
  return DeviceSpec::load(source_folder() + "/configs/devices/" + name + ".json");
}

PartConfig<Pipeline> pipeline(const std::string& json) {
  return PartConfig<Pipeline>::parse(ConfigNode::parse(json, "test.json"));
}

void expect_same_steps(const Timing& timing, const ScheduleMeasurement& schedule) {
  ASSERT_EQ(schedule.steps.size(), timing.steps.size());
  for (std::size_t i = 0; i < timing.steps.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const StepTiming& a = timing.steps[i];
    const StepMeasurement& b = schedule.steps[i];
    EXPECT_EQ(a.latency_ns, b.latency_ns);
    EXPECT_EQ(a.compute_ns, b.compute_ns);
    EXPECT_EQ(a.exposed_io_ns, b.exposed_io_ns());
    EXPECT_EQ(a.busy_io_ns, b.busy_io_ns);
    EXPECT_EQ(a.read_bytes, b.read_bytes);
    EXPECT_EQ(a.read_requests, b.read_requests);
    EXPECT_EQ(a.write_bytes, b.write_bytes);
    EXPECT_EQ(a.write_requests, b.write_requests);
  }
}

TEST(RecordedSchedule, TakesTheVeryTimesOfThePipelineOnEveryDevice) {
  const TemporaryFolder folder;
  const std::string file = folder.file("plan.schedule");
  for (const std::string text :
       {R"({"part": "serial"})", R"({"part": "layer_prefetch"})",
        R"({"part": "layer_prefetch", "depth": 3})", R"({"part": "two_stage"})",
        R"({"part": "two_stage", "index_on_flash": false})"}) {
    for (const std::string name : {"ufs40", "nvme_jetson", "emmc51"}) {
      SCOPED_TRACE(text + " on " + name);
      const PartConfig<Pipeline> chosen = pipeline(text);
      IoPlan plan = random_plan(7, chosen.make({})->pages_cache());
      plan.full_attention_layers = 1;
      for (const std::int64_t batch : {1, 3}) {
        Schedule schedule;
        TimeOptions options{.batch = batch, .timed_steps = 8};
        const Timing without =
            time_plan(plan, tiny_model(), tiny_platform(), preset(name), chosen, options);
        options.schedule = &schedule;
        const Timing timing =
            time_plan(plan, tiny_model(), tiny_platform(), preset(name), chosen, options);
        ASSERT_GT(schedule.commands().size(), 50u);
        expect_same_steps(timing, time_schedule(schedule, preset(name)));
        expect_same_steps(without, time_schedule(schedule, preset(name)));
        write_text_file(file, schedule.text());
        expect_same_steps(timing, time_schedule(Schedule::read(file), preset(name)));
      }
    }
  }
}

/// Completes every command after a time that grows with its number; keeps a record of them.
class Recorder final : public Device {
 public:
  explicit Recorder(const Context& context) : simulation_(context.simulation) { seen.clear(); }

  void submit(const IoCommand& command, EventHandler& done, std::uint64_t argument) override {
    seen.push_back(command);
    counters_.host_read_bytes += command.write ? 0 : command.bytes;
    simulation_.schedule(simulation_.now() + std::ssize(seen) % 50 * 1000, done, argument);
  }
  [[nodiscard]] DeviceLimits limits() const override { return {512, 1 << 14, 32}; }
  [[nodiscard]] DeviceCounters counters() const override { return counters_; }

  inline static std::vector<IoCommand> seen;

 private:
  Simulation& simulation_;
  DeviceCounters counters_;
};

const Registered<Device> kRecorder{{
    .name = "recorder",
    .help = "for tests",
    .source = "test",
    .parameters = {},
    .make = [](const Arguments&,
               const Device::Context& context) { return std::make_unique<Recorder>(context); },
}};

TEST(RecordedSchedule, HasEveryCommandThatTheDeviceSawExactlyOnce) {
  const DeviceSpec recorder = DeviceSpec::parse(ConfigNode::parse(
      R"({"name": "recorder", "title": "test", "part": "recorder"})", "test.json"));
  const auto same = [](const IoCommand& a, const IoCommand& b) {
    return a.offset == b.offset && a.bytes == b.bytes && a.write == b.write;
  };
  for (const char* name : {"serial", "layer_prefetch", "two_stage"}) {
    Schedule schedule;
    const Timing timing = time_plan(random_plan(9, name == std::string("two_stage")), tiny_model(),
                                    tiny_platform(), recorder, PartConfig<Pipeline>::by_name(name),
                                    {.batch = 2, .schedule = &schedule});
    EXPECT_TRUE(std::ranges::equal(schedule.commands(), Recorder::seen, same));
    const ScheduleMeasurement alone = time_schedule(schedule, recorder);
    EXPECT_TRUE(std::ranges::equal(schedule.commands(), Recorder::seen, same));
    expect_same_steps(timing, alone);
    for (const RequestTimes& request : alone.requests) EXPECT_GE(request.latency_ns(), 0);
  }
}

/// Pipelines whose operations are one line, and errors for those that branch.
class RecordingMachineTest : public testing::Test {
 protected:
  RecordingMachineTest() { work_.layers[0].commands(TransferKind::kReads) = {{0, 4096, false}}; }

  StepWork work_{.layers = std::vector<LayerWork>(1)};
  Schedule schedule_{{4096, 1 << 20, 32}, "test"};
  RecordingMachine machine_{schedule_, work_};
};

StepTask computes(Machine& machine) {
  co_await machine.compute(Kernels::kAttend, 0);
}

StepTask reads_while_it_computes(Machine& machine) {
  const Wait computation = machine.compute(Kernels::kScore, 0);
  machine.start(TransferKind::kReads, 0);
  co_await computation;
}

StepTask restarts(Machine& machine) {
  machine.start(TransferKind::kReads, 0);
  co_await machine.compute(Kernels::kAttend, 0);
  machine.start(TransferKind::kReads, 0);
}

StepTask reads_then_attends(Machine& machine) {
  co_await machine.compute(Kernels::kProject | Kernels::kScore, 0);
  machine.start(TransferKind::kReads, 0);
  co_await machine.wait(TransferKind::kReads, 0);
  co_await machine.wait(TransferKind::kWrites, 0);
  machine.start(TransferKind::kWrites, 0);
  co_await machine.compute(Kernels::kAttend, 0);
  co_await machine.compute_head();
}

std::string logic_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "nothing";
}

TEST_F(RecordingMachineTest, WritesDownWhatWasAskedForInItsOrder) {
  LayerWork& layer = work_.layers[0];
  layer.project_query_ns = 1;
  layer.project_key_value_ns = 20;
  layer.score_ns = 300;
  layer.attend_ns = 4000;
  work_.head_ns = 50000;
  layer.commands(TransferKind::kReads) = {{8192, 4096, false}, {0, 512, false}};
  machine_.run(reads_then_attends(machine_));
  layer.commands(TransferKind::kReads).clear();
  layer.commands(TransferKind::kWrites) = {{0, 4096, true}};
  layer.attend_ns = 7;
  machine_.run(reads_then_attends(machine_));
  machine_.run(reads_then_attends(machine_));
  const std::string expected = R"(kvreplay schedule 1
made_from test
limits 4096 1048576 32
step
compute 321
submit 2
r 8192 4096
r 0 512
wait 0
compute 4000
compute 50000
step
compute 321
submit 1
w 0 4096
compute 7
compute 50000
step
compute 321
wait 1
submit 1
w 0 4096
compute 7
compute 50000
)";
  EXPECT_EQ(schedule_.text(), expected + "end 3 4 " + sha256_text(expected) + "\n");
}

TEST_F(RecordingMachineTest, APipelineThatIsNoLineIsRefused) {
  constexpr const char* kBranches = "a pipeline with branches cannot be recorded as a schedule";
  EXPECT_EQ(logic_error_of([&] { machine_.run(reads_while_it_computes(machine_)); }), kBranches);
  RecordingMachine other(schedule_, work_);
  EXPECT_EQ(logic_error_of([&] { other.run(restarts(other)); }),
            "a transfer was started again without having been waited for");
  RecordingMachine twice(schedule_, work_);
  schedule_.begin_step();
  StepTask one = computes(twice);
  StepTask another = computes(twice);
  one.start();
  another.start();
  ASSERT_TRUE(another.done());
  EXPECT_EQ(logic_error_of([&] { another.rethrow(); }), kBranches);
}

TEST(TimeSchedule, RefusesCommandsThatTheDeviceDoesNotTake) {
  Schedule schedule({512, 1 << 20, 32}, "test");
  schedule.begin_step();
  schedule.submit(std::vector<IoCommand>{{512, 512, false}});
  EXPECT_NE(user_error_of([&] {
              (void)time_schedule(schedule, preset("ufs40"));
            }).find("does not take a command of 512 bytes at offset 512"),
            std::string::npos);
}

}  // namespace
}  // namespace kvreplay
