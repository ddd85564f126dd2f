// The executor, on real files with every engine, and on an engine that completes in a strange order
// and fails on purpose.

#include "devices/real/run_schedule.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "devices/real/aligned_buffer.hpp"
#include "tests/devices/real/target_file.hpp"
#include "tests/devices/schedule/schedules.hpp"
#include "tests/support/file_size_limit.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Completes one random request per wait. The command number `fail_at` fails.
class StrangeEngine final : public IoEngine {
 public:
  explicit StrangeEngine(std::uint32_t depth, std::uint64_t seed = 0)
      : depth_(depth), random_(seed) {}

  std::vector<IoCommand> started;
  std::vector<std::uint64_t> memory;  ///< by command, where its bytes are
  std::set<std::size_t> completed;
  std::size_t fail_at = ~std::size_t{0};
  std::atomic<bool>* stop = nullptr;
  std::size_t stop_after = 0;
  [[nodiscard]] bool idle() const { return outstanding_.empty(); }

 private:
  void begin(std::uint32_t slot, const IoRequest& request) override {
    EXPECT_LT(slot, depth_);
    EXPECT_TRUE(outstanding_.emplace(slot, request).second) << "the slot is taken";
    started.push_back(request.command);
    memory.push_back(request.memory_offset);
    numbers_[slot] = started.size() - 1;
  }
  void await(std::int64_t until_ns, std::vector<IoResult>& results) override {
    ASSERT_FALSE(outstanding_.empty());
    if (until_ns != kForever && random_.below(3) > 0) return;  // the time was over
    const auto chosen = std::next(outstanding_.begin(),
                                  static_cast<std::ptrdiff_t>(random_.below(outstanding_.size())));
    const std::size_t number = numbers_[chosen->first];
    const std::int64_t bytes = chosen->second.command.bytes;
    const std::int64_t result = number == fail_at ? -EIO : bytes;
    results.push_back({chosen->first, result, monotonic_ns()});
    if (result > 0) completed.insert(number);
    outstanding_.erase(chosen);
    if (stop != nullptr && completed.size() == stop_after) *stop = true;
  }

  std::uint32_t depth_;
  Random random_;
  std::map<std::uint32_t, IoRequest> outstanding_;
  std::map<std::uint32_t, std::size_t> numbers_;
};

bool same(const IoCommand& a, const IoCommand& b) {
  return a.offset == b.offset && a.bytes == b.bytes && a.write == b.write;
}

/// Steps that need no clock.
Schedule without_computation(std::uint64_t seed) {
  return test::random_schedule({.steps = 20, .max_compute_ns = 1}, seed);
}

TEST(RunSchedule, MemoryIsUsedInTurn) {
  constexpr std::uint32_t kDepth = 3;
  constexpr std::uint64_t kUnit = 4096;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Schedule schedule = without_computation(seed);
    const std::uint64_t largest = schedule.limits().max_transfer_bytes;
    for (const std::uint64_t turn : {std::uint64_t{0}, largest, 10 * largest}) {
      StrangeEngine engine(kDepth, seed);
      (void)run_schedule(engine, schedule, {.depth = kDepth, .turn_bytes = turn});
      ASSERT_EQ(engine.memory.size(), schedule.commands().size());
      std::uint64_t end = 0;
      for (std::size_t i = 0; i < engine.memory.size(); ++i) {
        const std::uint64_t bytes = schedule.commands()[i].bytes;
        if (turn == 0) {
          EXPECT_EQ(engine.memory[i] % largest, 0u);
          EXPECT_LT(engine.memory[i], kDepth * largest);
          continue;
        }
        EXPECT_EQ(engine.memory[i], end + bytes > turn ? 0 : end) << "command " << i;
        EXPECT_LE(engine.memory[i] + bytes, turn);
        end = engine.memory[i] + (bytes + kUnit - 1) / kUnit * kUnit;
      }
    }
  }
}

TEST(RunSchedule, EveryCommandIsStartedOnceInOrderAndWithinTheDepth) {
  for (const std::uint32_t depth : {1u, 2u, 7u, 64u}) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const Schedule schedule = without_computation(seed);
      StrangeEngine engine(depth, seed);  // refuses a slot beyond the depth
      const ScheduleMeasurement result = run_schedule(engine, schedule, {.depth = depth});
      ASSERT_TRUE(std::ranges::equal(engine.started, schedule.commands(), same));
      EXPECT_TRUE(engine.idle());
      EXPECT_FALSE(result.partial());
      ASSERT_EQ(result.steps.size(), schedule.steps());
      ASSERT_EQ(result.requests.size(), schedule.commands().size());
      for (const RequestTimes& request : result.requests) {
        EXPECT_GE(request.requested_ns, 0);
        EXPECT_GE(request.latency_ns(), 0);
      }
    }
  }
}

TEST(RunSchedule, NothingIsDoneBeforeWhatItWaitsFor) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Schedule schedule = test::random_schedule({.steps = 10, .max_compute_ns = 2}, seed);
    std::size_t expected = 0;
    for (const auto& [kind, value] : schedule.operations()) {
      expected += kind == Schedule::Kind::kCompute && value > 0 ? 1 : 0;
    }
    StrangeEngine engine(5, seed);
    std::size_t computations = 0;
    RunScheduleOptions options{.depth = 5};
    options.compute = [&](std::int64_t duration_ns) {
      EXPECT_EQ(duration_ns, 1);
      ++computations;
    };
    const ScheduleMeasurement result = run_schedule(engine, schedule, options);
    EXPECT_EQ(computations, expected);
    EXPECT_FALSE(result.partial());
    // The commands of a wait completed before any later request.
    std::int64_t floor_ns = 0;
    for (const auto& [kind, value] : schedule.operations()) {
      if (kind != Schedule::Kind::kSubmit && kind != Schedule::Kind::kWait) continue;
      const std::size_t end = schedule.first_command(value + 1);
      for (std::size_t i = schedule.first_command(value); i < end; ++i) {
        if (kind == Schedule::Kind::kSubmit) {
          EXPECT_GE(result.requests[i].requested_ns, floor_ns);
        } else {
          floor_ns = std::max(floor_ns, result.requests[i].completed_ns);
        }
      }
    }
  }
}

TEST(RunSchedule, ComputationsTakeAtLeastTheirTimeAndStepsAddUp) {
  Schedule schedule({4096, 4096, 4}, "test");
  for (int step = 0; step < 3; ++step) {
    schedule.begin_step();
    schedule.compute(300'000);
    const std::int64_t batch = schedule.submit(std::vector<IoCommand>{{0, 4096, false}});
    schedule.compute(150'000);
    schedule.wait(batch);
    schedule.compute(10'000);
  }
  StrangeEngine engine(4);
  const ScheduleMeasurement result = run_schedule(engine, schedule, {.depth = 4});
  ASSERT_EQ(result.steps.size(), 3u);
  for (const StepMeasurement& step : result.steps) {
    EXPECT_GE(step.compute_ns, 460'000);
    EXPECT_GE(step.latency_ns, step.compute_ns);
    EXPECT_LE(step.busy_io_ns, step.latency_ns);
    EXPECT_GT(step.busy_io_ns, 0);
    EXPECT_EQ(step.read_requests, 1);
    EXPECT_EQ(step.read_bytes, 4096);
    EXPECT_EQ(step.write_requests, 0);
  }
}

TEST(RunSchedule, AFailureKeepsTheStepsBeforeIt) {
  const Schedule schedule = test::ten_steps_of_six_reads();
  StrangeEngine engine(3);
  engine.fail_at = 6 * 4 + 2;
  const ScheduleMeasurement result = run_schedule(engine, schedule, {.depth = 3});
  EXPECT_TRUE(result.partial());
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->error, EIO);
  EXPECT_EQ(result.failure->command.offset, (6u * 4 + 2) * 4096);
  EXPECT_EQ(result.steps.size(), 4u);
  EXPECT_TRUE(engine.idle()) << "requests were left outstanding";
  EXPECT_LT(engine.started.size(), 6u * 5) << "went on after the failure";
  std::size_t completed = 0;
  for (std::size_t i = 0; i < result.requests.size(); ++i) {
    EXPECT_EQ(result.requests[i].completed(), engine.completed.contains(i));
    completed += result.requests[i].completed() ? 1 : 0;
  }
  EXPECT_GE(completed, 6u * 4);
}

TEST(RunSchedule, AnInterruptKeepsTheStepsBeforeIt) {
  const Schedule schedule = without_computation(1);
  std::atomic<bool> stop{false};
  StrangeEngine engine(4);
  engine.stop = &stop;
  engine.stop_after = schedule.commands().size() / 2;
  const ScheduleMeasurement result = run_schedule(engine, schedule, {.depth = 4, .stop = &stop});
  EXPECT_TRUE(result.interrupted);
  EXPECT_FALSE(result.failure);
  EXPECT_LT(result.steps.size(), schedule.steps());
  EXPECT_TRUE(engine.idle());
  EXPECT_LT(engine.started.size(), schedule.commands().size());
}

TEST(RunSchedule, AnInterruptEndsALongComputation) {
  Schedule schedule({4096, 4096, 4}, "test");
  schedule.begin_step();
  schedule.compute(3600 * std::int64_t{1'000'000'000});
  std::atomic<bool> stop{true};
  StrangeEngine engine(1);
  const ScheduleMeasurement result = run_schedule(engine, schedule, {.depth = 1, .stop = &stop});
  EXPECT_TRUE(result.interrupted);
  EXPECT_TRUE(result.steps.empty());
}

TEST(ScheduleMeasurement, ItsJsonHoldsAllOfIt) {
  ScheduleMeasurement measurement;
  measurement.steps = {{1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 1ll << 60}};
  measurement.requests = {{0, 5}, {3, -1}, {-1, -1}};
  measurement.interrupted = true;
  for (const bool failed : {false, true}) {
    if (failed) measurement.failure = IoFailure{{4096, 512, true}, EIO, 77, 1ll << 60};
    const ScheduleMeasurement read = parse_schedule_measurement(to_json(measurement), "test");
    EXPECT_EQ(read.steps, measurement.steps);
    EXPECT_EQ(read.requests, measurement.requests);
    EXPECT_TRUE(read.interrupted);
    ASSERT_EQ(read.failure.has_value(), failed);
    if (!failed) continue;
    EXPECT_TRUE(same(read.failure->command, measurement.failure->command));
    EXPECT_EQ(read.failure->error, EIO);
    EXPECT_EQ(read.failure->transferred_bytes, 77u);
    EXPECT_EQ(read.failure->unanswered_ns, 1ll << 60);
  }
  for (const char* text : {"", "{}", R"({"interrupted": 3})",
                           R"({"interrupted": true, "steps": [[1, 2]], "requests": []})"}) {
    EXPECT_THAT(user_error_of([&] { (void)parse_schedule_measurement(text, "agent"); }),
                AllOf(HasSubstr("agent: "), HasSubstr("is no measurement")));
  }
}

class RunScheduleOnFile : public test::TargetFile {
 protected:
  static ScheduleMeasurement run(const BlockTarget& target, const std::string& name,
                                 const Schedule& schedule, std::byte fill = std::byte{0}) {
    const std::uint32_t depth = name == "sync" ? 1 : 6;
    const AlignedBuffer memory(memory_bytes(schedule, depth), target.alignment().memory_bytes);
    std::ranges::fill(memory.bytes(), fill);
    const auto engine = PartConfig<IoEngine>::by_name(name).make({target, memory.bytes(), depth});
    return run_schedule(*engine, schedule, {.depth = depth});
  }
};

TEST_F(RunScheduleOnFile, WritesWhatTheObviousLoopWrites) {
  const Schedule schedule =
      test::random_schedule({.steps = 10, .block = block_, .write_share = 1}, 11);
  for (const std::string& name : engines(BlockTarget::open(path_))) {
    SCOPED_TRACE(name);
    test::write_file(path_, test::known_bytes(0, kBytes));
    std::vector<std::byte> expected = test::known_bytes(0, kBytes);
    for (const IoCommand& command : schedule.commands()) {
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(command.offset), command.bytes,
                  std::byte{0xa5});
    }
    const ScheduleMeasurement result =
        run(BlockTarget::open_destructive(path_), name, schedule, std::byte{0xa5});
    ASSERT_FALSE(result.partial());
    EXPECT_EQ(test::read_file(path_), expected);
  }
}

TEST_F(RunScheduleOnFile, ReadsWhatTheObviousLoopReads) {
  // Each batch has the whole depth and is waited for, so at that moment all its bytes are in
  // memory.
  constexpr std::uint32_t kDepth = 4;
  Schedule schedule({block_, 8 * block_, kDepth}, "test");
  Random random(5);
  std::vector<IoCommand> all;
  for (int step = 0; step < 5; ++step) {
    schedule.begin_step();
    std::vector<IoCommand> batch(kDepth);
    for (IoCommand& command : batch) {
      command.bytes = static_cast<std::uint32_t>(1 + random.below(8)) * block_;
      command.offset = random.below((kBytes - command.bytes) / block_) * block_;
    }
    schedule.wait(schedule.submit(batch));
    schedule.compute(1);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  const BlockTarget target = BlockTarget::open(path_);
  for (const std::string& name : engines(target)) {
    if (name == "sync") continue;  // depth 1
    SCOPED_TRACE(name);
    const AlignedBuffer memory(memory_bytes(schedule, kDepth), target.alignment().memory_bytes);
    const auto engine = PartConfig<IoEngine>::by_name(name).make({target, memory.bytes(), kDepth});
    std::size_t step = 0;
    RunScheduleOptions options{.depth = kDepth};
    options.compute = [&](std::int64_t) {
      // The slots may be in any order: each command's bytes are in one of them.
      for (std::size_t i = kDepth * step; i < kDepth * (step + 1); ++i) {
        const auto truth = test::known_bytes(all[i].offset, all[i].bytes);
        bool found = false;
        for (std::size_t slot = 0; slot < kDepth; ++slot) {
          const auto bytes = memory.bytes().subspan(slot * 8 * block_, all[i].bytes);
          found |= std::ranges::equal(bytes, truth);
        }
        EXPECT_TRUE(found) << "step " << step << ", offset " << all[i].offset;
      }
      ++step;
    };
    ASSERT_FALSE(run_schedule(*engine, schedule, options).partial());
    EXPECT_EQ(step, 5u);
  }
}

TEST_F(RunScheduleOnFile, AFileThatBecomesShorterEndsItWithTheStepsBefore) {
  Schedule schedule({block_, 4 * block_, 4}, "test");
  for (std::uint64_t step = 0; step < 8; ++step) {
    schedule.begin_step();
    schedule.wait(
        schedule.submit(std::vector<IoCommand>{{step * (kBytes / 8), 4 * block_, false}}));
  }
  for (const std::string& name : engines(BlockTarget::open(path_))) {
    SCOPED_TRACE(name);
    test::write_file(path_, test::known_bytes(0, kBytes));
    const BlockTarget target = BlockTarget::open(path_);
    // During the read of step 5.
    ASSERT_EQ(::truncate(path_.c_str(), 5 * (kBytes / 8) + block_), 0);
    const ScheduleMeasurement result = run(target, name, schedule);
    EXPECT_EQ(result.steps.size(), 5u);
    ASSERT_TRUE(result.failure);
    EXPECT_THAT(result.failure->to_error(target.path()).what(),
                AllOf(HasSubstr("at offset " + std::to_string(5 * (kBytes / 8))),
                      HasSubstr("transferred only " + std::to_string(block_))));
  }
}

TEST_F(RunScheduleOnFile, TheErrorOfAnUnansweredRequestSaysWhichAndHowLong) {
  const IoFailure failure{{8192, 4096, true}, 0, 0, 61'500'000'000};
  EXPECT_THAT(failure.to_error(path_).what(),
              AllOf(HasSubstr(path_), HasSubstr("write of 4096 bytes at offset 8192"),
                    HasSubstr("no answer for 61.50 s"), HasSubstr("--request-timeout")));
}

TEST_F(RunScheduleOnFile, AFileThatVanishesIsStillThereForWhoHasItOpen) {
  const Schedule schedule =
      test::random_schedule({.steps = 4, .block = block_, .write_share = 0}, 2);
  const BlockTarget target = BlockTarget::open(path_);
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  EXPECT_FALSE(run(target, engine_preference().back(), schedule).partial());
}

TEST_F(RunScheduleOnFile, AFullDeviceEndsItWithTheStepsBefore) {
  Schedule schedule({block_, 4 * block_, 4}, "test");
  for (std::uint64_t step = 0; step < 4; ++step) {
    schedule.begin_step();
    schedule.wait(schedule.submit(std::vector<IoCommand>{{step * (kBytes / 4), 4 * block_, true}}));
  }
  for (const std::string& name : engines(BlockTarget::open(path_))) {
    SCOPED_TRACE(name);
    const BlockTarget target = BlockTarget::open_destructive(path_);
    const FileSizeLimit limit(kBytes / 2);  // a write beyond it fails as on a full disk
    const ScheduleMeasurement result = run(target, name, schedule);
    EXPECT_EQ(result.steps.size(), 2u);
    ASSERT_TRUE(result.failure);
    EXPECT_EQ(result.failure->error, EFBIG);
    EXPECT_THAT(result.failure->to_error(target.path()).what(),
                AllOf(HasSubstr("write of"), HasSubstr("failed (File too large)")));
  }
}

TEST_F(RunScheduleOnFile, TheTargetIsCheckedBeforeTheFirstRequest) {
  const BlockTarget target = BlockTarget::open(path_);
  const auto error_of = [&](const DeviceLimits& limits, const IoCommand& command) {
    Schedule schedule(limits, "test");
    schedule.begin_step();
    schedule.submit(std::vector<IoCommand>{{0, block_, false}, command});
    return user_error_of([&] { check(target, schedule); });
  };
  EXPECT_THAT(error_of({1, 1 << 20, 4}, {1, block_, false}), HasSubstr("is not aligned"));
  EXPECT_THAT(error_of({block_, 1 << 20, 4}, {kBytes, block_, false}), HasSubstr("passes its end"));
  EXPECT_THAT(error_of({block_, 1 << 20, 4}, {0, block_, true}), HasSubstr("--allow-destructive"));
}

}  // namespace
}  // namespace kvreplay
