// A measurement in a thread of its own: what it reports, and that a device that does not answer
// ends it from outside, wherever the thread is blocked.

#include "devices/real/measuring_thread.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "devices/real/replay_parts.hpp"
#include "devices/real/run_schedule.hpp"
#include "tests/devices/schedule/schedules.hpp"
namespace kvreplay {
namespace {

constexpr std::int64_t kLongNs = 3'600'000'000'000;
constexpr std::int64_t kPatienceNs = 20'000'000;
const std::atomic<bool> kNeverStop{false};

void wait_for(const std::atomic<bool>& condition) {
  while (!condition) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(MeasuringThread, TellsInOrderFromTheWaitingThread) {
  std::vector<int> told;
  int now_and_then = 0;
  const auto here = std::this_thread::get_id();
  const auto unanswered = measure_in_thread(
      1, kLongNs, kNeverStop,
      [&](Measuring& measuring) {
        EXPECT_NE(std::this_thread::get_id(), here);
        for (int i = 0; i < 100; ++i) {
          measuring.tell([&told, here, i] {
            EXPECT_EQ(std::this_thread::get_id(), here);
            told.push_back(i);
          });
        }
      },
      [&] { ++now_and_then; });
  EXPECT_FALSE(unanswered);
  ASSERT_EQ(told.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_GT(now_and_then, 0);
}

TEST(MeasuringThread, ItsExceptionIsThrownHere) {
  int told = 0;
  EXPECT_THROW((void)measure_in_thread(1, kLongNs, kNeverStop,
                                       [&](Measuring& measuring) {
                                         measuring.tell([&told] { ++told; });
                                         throw std::runtime_error("no engine");
                                       }),
               std::runtime_error);
  EXPECT_EQ(told, 1);
}

TEST(MeasuringThread, AStopIsHandedOn) {
  std::atomic<bool> stop{false};
  const auto unanswered = measure_in_thread(1, kLongNs, stop, [&stop](Measuring& measuring) {
    stop = true;
    wait_for(measuring.stop);
  });
  EXPECT_FALSE(unanswered);
}

TEST(MeasuringThread, WhatTheListenerThrowsEndsIt) {
  EXPECT_THROW((void)measure_in_thread(1, kLongNs, kNeverStop,
                                       [](Measuring& measuring) {
                                         measuring.tell([] { throw std::runtime_error("no"); });
                                         measuring.tell([] { ADD_FAILURE() << "told after it"; });
                                         wait_for(measuring.stop);
                                         measuring.tell([] { ADD_FAILURE() << "told after it"; });
                                       }),
               std::runtime_error);
}

/// What a test knows of an engine that was left behind.
struct Device {
  std::atomic<bool> answers{false};  ///< the unanswered request
  std::atomic<bool> went_on{false};  ///< after that
  std::atomic<int> started{0};
};

/// Completes everything at once, except a command that begins at `silent_offset`. That one blocks
/// its thread: in the submission, like engine sync, or in the wait.
class SilentEngine final : public IoEngine {
 public:
  SilentEngine(std::shared_ptr<Device> device, std::uint64_t silent_offset, bool in_submission,
               RequestWatch* watch)
      : IoEngine(watch),
        device_(std::move(device)),
        silent_offset_(silent_offset),
        in_submission_(in_submission) {}
  ~SilentEngine() override { EXPECT_FALSE(device_->answers) << "was left behind, and destroyed"; }

 private:
  void begin(std::uint32_t slot, const IoRequest& request) override {
    ++device_->started;
    const IoResult result{slot, request.command.bytes, monotonic_ns()};
    if (request.command.offset != silent_offset_) {
      results_.push_back(result);
    } else if (in_submission_) {
      wait_for(device_->answers);
      results_.push_back(result);
    } else {
      silent_ = result;
    }
  }
  void await(std::int64_t /*until_ns*/, std::vector<IoResult>& results) override {
    if (results_.empty()) {
      wait_for(device_->answers);
      results_.push_back(silent_.value());
    }
    results.swap(results_);
    if (device_->answers) device_->went_on = true;
  }

  std::shared_ptr<Device> device_;
  std::uint64_t silent_offset_;
  bool in_submission_;
  std::optional<IoResult> silent_;
  std::vector<IoResult> results_;
};

class SilentDevice : public ::testing::TestWithParam<bool> {
 protected:
  /// The reported request is the one at `silent` or, where the submission blocks the thread, one of
  /// the outstanding ones, because nobody has checked which of them are done.
  static void expect_told(const std::optional<IoFailure>& unanswered, std::uint64_t silent,
                          std::uint32_t depth) {
    ASSERT_TRUE(unanswered);
    EXPECT_LE(unanswered->command.offset, silent);
    EXPECT_GE(unanswered->command.offset, silent - (GetParam() ? depth - 1 : 0) * 4096);
    EXPECT_GE(unanswered->unanswered_ns, kPatienceNs);
  }

  /// The thread, once released, completes nothing and starts nothing.
  void expect_left_behind() const {
    const int started = device_->started;
    device_->answers = true;
    if (!GetParam()) wait_for(device_->went_on);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(device_->started, started);
    EXPECT_EQ(device_.use_count(), 3) << "the thread's own has gone";
  }

  std::shared_ptr<Device> device_ = std::make_shared<Device>();
};

TEST_P(SilentDevice, EndsAReplayWithTheStepsBefore) {
  constexpr std::uint64_t kSilent = (6 * 4 + 2) * 4096;
  const auto parts = std::make_shared<ReplayParts>();
  ScheduleMeasurement so_far;
  const auto take = [&] {
    while (const auto part = parts->take()) add_part(*part, "test", so_far);
  };
  const auto unanswered = measure_in_thread(
      3, kPatienceNs, kNeverStop,
      [parts, device = std::shared_ptr(device_), in_submission = GetParam(),
       schedule = test::ten_steps_of_six_reads()](Measuring& measuring) {
        SilentEngine engine(device, kSilent, in_submission, &measuring.watch);
        (void)run_schedule(
            engine, schedule,
            {.depth = 3, .on_step = [&parts](const auto& measured) { parts->note(measured); }});
      },
      take);
  take();
  expect_told(unanswered, kSilent, 3);
  EXPECT_EQ(so_far.steps.size(), 4u);
  ASSERT_GE(so_far.requests.size(), 6u * 4);
  for (std::size_t i = 0; i < 6 * 4; ++i) EXPECT_TRUE(so_far.requests[i].completed());
  expect_left_behind();
}

TEST_P(SilentDevice, EndsAProbeOfAnyEngine) {
  constexpr std::uint64_t kSilent = 5;
  const auto unanswered = measure_in_thread(
      2, kPatienceNs, kNeverStop,
      [device = std::shared_ptr(device_), in_submission = GetParam()](Measuring& measuring) {
        SilentEngine engine(device, kSilent * 4096, in_submission, &measuring.watch);
        (void)engine.run(
            [](std::uint64_t index) -> std::optional<IoRequest> {
              if (index == 8) return std::nullopt;
              return IoRequest{{index * 4096, 4096, true}, 0};
            },
            2);
      });
  expect_told(unanswered, kSilent * 4096, 2);
  EXPECT_TRUE(unanswered->command.write);
  expect_left_behind();
}

INSTANTIATE_TEST_SUITE_P(MeasuringThread, SilentDevice, ::testing::Bool(), [](const auto& held_up) {
  return held_up.param ? "InTheSubmission" : "InTheWait";
});

}  // namespace
}  // namespace kvreplay
