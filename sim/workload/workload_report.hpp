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

/// What a real target measured, on this machine or on another one.
struct TargetRun {
  ReplayEnd end;
  Schedule schedule;               ///< as it was run: wrapped where requested
  nlohmann::ordered_json setting;  ///< target, engine, host
};

/// The modelled device alone: one line of CSV per step, and the latency of the requests.
[[nodiscard]] std::string modelled_times_text(const DeviceWorkload& workload);

/// steps.csv, latencies.csv, table.txt and replay.json. `compute`: what the target did during a
/// computation ("wait" or "kernels").
[[nodiscard]] std::vector<ResultFile> replay_files(const DeviceWorkload& workload,
                                                   const TargetRun& run, const std::string& compute,
                                                   const ScheduleComparison& comparison);

/// By how many percent computations took longer than scheduled, where that is above five. Otherwise
/// the error of a step is due to the device alone.
[[nodiscard]] std::optional<std::int64_t> late_computations_percent(
    const ScheduleComparison& comparison);

}  // namespace kvreplay
