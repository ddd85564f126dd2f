#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "devices/real/aligned_buffer.hpp"
#include "devices/real/block_target.hpp"
#include "devices/real/run_schedule.hpp"
#include "devices/real/schedule.hpp"

namespace kvreplay {

/// How a schedule is to be run on a target.
struct ReplayRequest {
  std::string engine;       ///< "": the first that the system permits
  std::uint32_t depth = 0;  ///< requests outstanding at most; 0: what the schedule was made for
  bool wrap = false;        ///< fold a schedule that is larger than the target into it
  Pages pages = Pages::kOrdinary;
  double request_timeout_seconds = kRequestTimeoutSeconds;  ///< a longer request ends the replay
};

/// Takes what a replay tells as it goes, here or on another machine.
struct ReplaySink {
  /// Once, before the first step: target, engine and how it was chosen.
  std::function<void(const nlohmann::ordered_json& setting)> on_setting;
  /// After steps, with all that ended until then. It is called between steps that are measured,
  /// so it must not take long.
  std::function<void(const ScheduleMeasurement& so_far)> on_step;
};

/// What became of a replay.
struct ReplayEnd {
  ScheduleMeasurement measurement;
  std::string ended_by;  ///< "" at the end of the schedule; "interrupted", or an error
};

/// The schedule as it fits a target of `target_bytes`. UserError when it is larger, unless `wrap`.
[[nodiscard]] Schedule fit(const Schedule& schedule, std::uint64_t target_bytes, bool wrap,
                           const std::string& target_name);

/// Runs the schedule, fitted to the target. UserError before the first request when the target does
/// not take it. `compute` is as of RunScheduleOptions.
[[nodiscard]] ReplayEnd replay_schedule(const BlockTarget& target, const Schedule& schedule,
                                        const ReplayRequest& request,
                                        const std::function<void(std::int64_t)>& compute,
                                        const std::atomic<bool>& stop, const ReplaySink& sink);

}  // namespace kvreplay
