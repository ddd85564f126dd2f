#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "devices/real/block_target.hpp"
#include "devices/real/io_engine.hpp"
#include "devices/schedule/schedule.hpp"
#include "devices/schedule/schedule_measurement.hpp"

namespace kvreplay {

struct RunScheduleOptions {
  /// Largest number of outstanding requests; further commands wait for a completion, in order. At
  /// most the engine's depth.
  std::uint32_t depth = 32;
  /// Memory of the engine that the requests use in turn, wherever there is room; 0: each of the
  /// outstanding requests has its own.
  std::size_t turn_bytes = 0;
  /// Computes for about this many nanoseconds, on its own thread, while requests go on. Without it,
  /// the thread waits for the duration of the computation: asleep, then awake for the last 0.1 ms.
  std::function<void(std::int64_t duration_ns)> compute{};
  const std::atomic<bool>* stop = nullptr;  ///< when set, ends it early; finished steps are kept
  /// Called after each step, with the steps that have ended.
  std::function<void(const ScheduleMeasurement& so_far)> on_step{};
};

/// Memory that an engine needs to run the schedule: one buffer per outstanding request.
[[nodiscard]] std::size_t memory_bytes(const Schedule& schedule, std::uint32_t depth);

/// Throws UserError unless the target takes every command: alignment, size, and permission to
/// write.
void check(const BlockTarget& target, const Schedule& schedule);

/// Runs the schedule on the target of the engine, which takes its commands (see check()). The
/// engine was constructed with memory_bytes() or more, and the depth. Returns when the last command
/// has completed, though the time of a step ends with its last operation. The first failed request
/// ends the run; requests that are outstanding are waited for.
[[nodiscard]] ScheduleMeasurement run_schedule(IoEngine& engine, const Schedule& schedule,
                                               const RunScheduleOptions& options);

}  // namespace kvreplay
