// Measurements of a schedule, and those that cannot be of it.

#include "devices/schedule/schedule_measurement.hpp"

#include <gmock/gmock.h>

#include "tests/devices/schedule/schedules.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::HasSubstr;

/// Ten steps of six reads each, of which each takes a microsecond longer than the one before.
ScheduleMeasurement measured_in_turn() {
  ScheduleMeasurement measured;
  for (std::int64_t step = 0; step < 10; ++step) {
    measured.steps.push_back(
        {.latency_ns = 7000, .busy_io_ns = 6000, .read_bytes = 6 * 4096, .read_requests = 6});
    for (std::int64_t i = 1; i <= 6; ++i) {
      measured.requests.push_back({7000 * step, 7000 * step + 1000 * i});
    }
  }
  return measured;
}

void expect_refused(const ScheduleMeasurement& measured, const char* says,
                    std::size_t first_step = 0, std::size_t first_request = 0) {
  EXPECT_THAT(user_error_of([&] {
                check_measurement(measured, test::ten_steps_of_six_reads(), first_step,
                                  first_request, "board");
              }),
              HasSubstr(says));
}

TEST(CheckMeasurement, TakesWhatASchedulesStepsGive) {
  const Schedule schedule = test::ten_steps_of_six_reads();
  const ScheduleMeasurement whole = measured_in_turn();
  EXPECT_NO_THROW(check_measurement(whole, schedule, 0, 0, "board"));
  EXPECT_LE(to_json(whole).size(), longest_measurement(schedule));
  ScheduleMeasurement part;
  part.steps.assign(whole.steps.begin() + 4, whole.steps.begin() + 6);
  part.requests.assign(whole.requests.begin() + 20, whole.requests.begin() + 36);
  part.requests.back() = {42'000, -1};
  part.requests.push_back({});
  EXPECT_NO_THROW(check_measurement(part, schedule, 4, 20, "board"));
  EXPECT_NO_THROW(check_measurement({}, schedule, 10, 60, "board"));
}

TEST(CheckMeasurement, RefusesWhatIsOfAnother) {
  const auto changed = [](const auto& change) {
    ScheduleMeasurement measured = measured_in_turn();
    change(measured);
    return measured;
  };
  expect_refused(changed([](auto& m) { m.steps.push_back(m.steps[0]); }), "too many");
  expect_refused(changed([](auto& m) { m.requests.emplace_back(); }), "too many");
  expect_refused(measured_in_turn(), "too many", 1);
  expect_refused(measured_in_turn(), "too many", 0, 1);
  expect_refused(measured_in_turn(), "too many", 11, 61);
  expect_refused(changed([](auto& m) { m.steps[3].read_bytes += 4096; }), "board: ");
  expect_refused(changed([](auto& m) { m.steps[3].read_bytes += 4096; }), "step 3");
  expect_refused(changed([](auto& m) { m.steps[3].write_requests = 1; }), "step 3");
  expect_refused(changed([](auto& m) { m.steps[3].latency_ns = -1; }), "step 3");
  expect_refused(changed([](auto& m) { m.steps[3].busy_io_ns = INT64_MAX; }), "step 3");
  expect_refused(changed([](auto& m) { m.requests[8].completed_ns = 1; }), "request 8");
  expect_refused(changed([](auto& m) { m.requests[8].completed_ns = -2; }), "request 8");
  expect_refused(changed([](auto& m) { m.requests[8].requested_ns = -1; }), "request 8");
}

TEST(CheckMeasurement, TextsOfTheLargestNumbersFit) {
  const Schedule schedule = test::ten_steps_of_six_reads();
  ScheduleMeasurement measured = measured_in_turn();
  constexpr std::int64_t kLongest = INT64_MIN;
  for (StepMeasurement& step : measured.steps) {
    step = {kLongest, kLongest, kLongest, kLongest, kLongest, kLongest, kLongest};
  }
  for (RequestTimes& request : measured.requests) request = {kLongest, kLongest};
  measured.failure = IoFailure{};
  EXPECT_LE(to_json(measured).size(), longest_measurement(schedule));
}

}  // namespace
}  // namespace kvreplay
