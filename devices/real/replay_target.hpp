#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "devices/real/aligned_buffer.hpp"
#include "devices/real/block_target.hpp"
#include "devices/real/replay_parts.hpp"
#include "devices/real/run_schedule.hpp"
#include "devices/schedule/schedule.hpp"

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
  /// About once a second, and in the end, with the steps that are new.
  std::function<void(const ReplayPart& part)> on_part;
};

/// What became of a replay.
struct ReplayEnd {
  ScheduleMeasurement measurement;
  std::string ended_by;  ///< "" at the end of the schedule; "interrupted", or an error
};

/// The schedule as it fits a target of `target_bytes`. UserError when it is larger, unless `wrap`.
[[nodiscard]] Schedule fit(const Schedule& schedule, std::uint64_t target_bytes, bool wrap,
                           const std::string& target_name);

/// Runs the schedule, fitted to the target, in a thread of its own: measure_in_thread(). The sink
/// is called from this one. UserError before the first request when the target does not take it.
/// `compute` is as of RunScheduleOptions, and a copy of it is used.
[[nodiscard]] ReplayEnd replay_schedule(const BlockTarget& target, const Schedule& schedule,
                                        const ReplayRequest& request,
                                        const std::function<void(std::int64_t)>& compute,
                                        const std::atomic<bool>& stop, const ReplaySink& sink);

}  // namespace kvreplay
