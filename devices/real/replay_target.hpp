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

/// How to run a schedule on a target.
struct ReplayRequest {
  std::string engine;       ///< "": the first one that the system permits
  std::uint32_t depth = 0;  ///< requests outstanding at most; 0: what the schedule was made for
  bool wrap = false;        ///< fold a schedule larger than the target into it
  Pages pages = Pages::kOrdinary;
  double request_timeout_seconds = kRequestTimeoutSeconds;  ///< a longer request ends the replay
};

/// Receives the results of a replay as it proceeds, on this machine or another.
struct ReplaySink {
  /// Called once, before the first step: target, engine and how it was chosen.
  std::function<void(const nlohmann::ordered_json& setting)> on_setting;
  /// Called about once per second, and at the end, with the new steps.
  std::function<void(const ReplayPart& part)> on_part;
};

/// Outcome of a replay.
struct ReplayEnd {
  ScheduleMeasurement measurement;
  std::string ended_by;  ///< "" at the end of the schedule; "interrupted", or an error
};

/// The schedule as it fits a target of `target_bytes`. Throws UserError when it is larger, unless
/// `wrap`.
[[nodiscard]] Schedule fit(const Schedule& schedule, std::uint64_t target_bytes, bool wrap,
                           const std::string& target_name);

/// Runs the schedule, fitted to the target, in a separate thread (measure_in_thread()). The sink is
/// called from the calling thread. Throws UserError before the first request when the target cannot
/// take it. `compute` is as in RunScheduleOptions, and is copied.
[[nodiscard]] ReplayEnd replay_schedule(const BlockTarget& target, const Schedule& schedule,
                                        const ReplayRequest& request,
                                        const std::function<void(std::int64_t)>& compute,
                                        const std::atomic<bool>& stop, const ReplaySink& sink);

}  // namespace kvreplay
