#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result_folder.hpp"
#include "devices/real/replay_target.hpp"
#include "devices/real/schedule_report.hpp"
#include "sim/workload/device_workload.hpp"

namespace kvreplay {

/// What a real target gave, of this machine or of another one.
struct TargetRun {
  ReplayEnd end;
  Schedule schedule;               ///< as it was run: wrapped, where asked for
  nlohmann::ordered_json setting;  ///< target, engine, host
};

/// The modelled device alone: a line of CSV for each step, and the latency of the requests.
[[nodiscard]] std::string modelled_times_text(const DeviceWorkload& workload);

/// steps.csv, latencies.csv, table.txt and replay.json. `compute`: what happened in the time of a
/// computation ("wait", "kernels").
[[nodiscard]] std::vector<ResultFile> replay_files(const DeviceWorkload& workload,
                                                   const TargetRun& run, const std::string& compute,
                                                   const ScheduleComparison& comparison);

/// By how many percent computations took longer than scheduled, where it is more than five: the
/// error of a step is the device's only while they take as long as they should.
[[nodiscard]] std::optional<std::int64_t> late_computations_percent(
    const ScheduleComparison& comparison);

}  // namespace kvreplay
