#include "sim/workload/device_workload.hpp"

#include <gmock/gmock.h>

#include <array>
#include <fstream>

#include "base/output_file.hpp"
#include "devices/schedule/time_schedule.hpp"
#include "sim/workload/workload_report.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class DeviceWorkloadTest : public testing::Test {
 protected:
  /// Three steps: a read of 4 KiB and a computation of 1 ms each.
  [[nodiscard]] std::string schedule_file() const {
    Schedule schedule(DeviceLimits{}, "three reads");
    for (std::uint64_t step = 0; step < 3; ++step) {
      schedule.begin_step();
      const std::array<IoCommand, 1> commands{IoCommand{.offset = step << 20, .bytes = 4096}};
      const std::int64_t batch = schedule.submit(commands);
      schedule.compute(1'000'000);
      schedule.wait(batch);
    }
    std::string file = folder_.file("three.schedule");
    write_text_file(file, schedule.text());
    return file;
  }

  TemporaryFolder folder_;
};

TEST_F(DeviceWorkloadTest, ReadsASchedule) {
  const DeviceWorkload workload = load_device_workload(
      {.source = schedule_file(), .model_device = "ufs40", .sets = {}, .steps = 2});
  EXPECT_EQ(workload.schedule.steps(), 2U);
  EXPECT_EQ(workload.model.name, "ufs40");
  EXPECT_EQ(workload.from["made_from"], "three reads");
  EXPECT_EQ(workload.trace, "");
  const std::string text = modelled_times_text(workload);
  EXPECT_THAT(text, testing::StartsWith("three reads\n\nstep,read_bytes,write_bytes,latency_ms,"
                                        "compute_ms,exposed_io_ms,busy_io_ms\n0,4096,0,"));
  EXPECT_THAT(text, HasSubstr("\n2 requests on ufs40, latency (us): mean "));
}

TEST_F(DeviceWorkloadTest, SetsChangeTheDeviceOfASchedule) {
  const auto latency = [&](const std::vector<std::string>& sets) {
    const DeviceWorkload workload =
        load_device_workload({.source = schedule_file(), .model_device = "ufs40", .sets = sets});
    return time_schedule(workload.schedule, workload.model).requests.front().latency_ns();
  };
  EXPECT_GT(latency({"device.command_latency_us=900"}), latency({}) + 500'000);
  EXPECT_THAT(user_error_of([&] { static_cast<void>(latency({"system=kvswap"})); }),
              AllOf(HasSubstr("--set system=kvswap"), HasSubstr("device.PARAMETER=VALUE")));
}

TEST_F(DeviceWorkloadTest, WritesDownAnExperiment) {
  write_synthetic_trace(folder_.file("a.kvtrace.h5"), {.prompt = 128, .decode = 12});
  const json members = {
      {"title", "test"},
      {"trace", "a.kvtrace.h5"},
      {"system", "quest"},
      {"model", "smollm2-135m"},
      {"platform", "oneplus12"},
      {"device", "emmc51"},
      {"batch", 1},
      {"set", {{"system.stream.dense_layers", 0}, {"system.selection.budget_tokens", 32}}},
      {"warm_up_steps", 2}};
  const std::string file = folder_.file("test.json");
  std::ofstream(file) << members;
  const DeviceWorkload workload = load_device_workload(
      {.source = file, .model_device = "ufs40", .sets = {"batch=2"}, .steps = 3});
  EXPECT_EQ(workload.schedule.steps(), 3U);
  EXPECT_EQ(workload.model.name, "ufs40");  // not the experiment's
  EXPECT_EQ(workload.trace, folder_.file("a.kvtrace.h5"));
  EXPECT_EQ(workload.from["system"], "quest");
  EXPECT_EQ(workload.from["experiment"], "test");
}

TEST_F(DeviceWorkloadTest, RefusesWhatIsNeither) {
  const std::string file = folder_.file("letter.txt");
  std::ofstream(file) << "Dear all";
  EXPECT_THAT(user_error_of([&] {
                static_cast<void>(
                    load_device_workload({.source = file, .model_device = "ufs40", .sets = {}}));
              }),
              AllOf(HasSubstr("letter.txt"), HasSubstr("nothing that can be timed or replayed")));
}

TEST_F(DeviceWorkloadTest, ReportsARun) {
  const DeviceWorkload workload =
      load_device_workload({.source = schedule_file(), .model_device = "ufs40", .sets = {}});
  const ScheduleMeasurement modelled = time_schedule(workload.schedule, workload.model);
  TargetRun run{{modelled, ""}, workload.schedule, {{"target", "the model itself"}}};
  for (StepMeasurement& step : run.end.measurement.steps) {
    step.compute_ns += 300'000;
    step.latency_ns += 300'000;
  }
  const ScheduleComparison comparison(run.schedule, modelled, run.end.measurement);
  EXPECT_EQ(late_computations_percent(comparison), 30);
  const std::vector<ResultFile> files = replay_files(workload, run, "wait", comparison);
  ASSERT_EQ(files.size(), 4U);
  EXPECT_EQ(files.back().name, "replay.json");
  const json report = json::parse(files.back().text);
  EXPECT_EQ(report["complete"], true);
  EXPECT_EQ(report["compute"], "wait");
  EXPECT_EQ(report["target"], "the model itself");
  EXPECT_EQ(report["schedule"]["steps"], 3);
  EXPECT_EQ(report["schedule"]["wrapped"], false);
  const ScheduleComparison same(run.schedule, modelled, modelled);
  EXPECT_EQ(late_computations_percent(same), std::nullopt);
}

}  // namespace
}  // namespace kvreplay
