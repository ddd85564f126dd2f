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
  /// Requests outstanding at most; what is submitted beyond waits for a completion, in order. At
  /// most the engine's.
  std::uint32_t depth = 32;
  /// Computes for about so many nanoseconds, on a thread of its own, while requests go on. Without
  /// it the time of a computation is waited for: asleep, and awake for the last 0.1 ms.
  std::function<void(std::int64_t duration_ns)> compute{};
  const std::atomic<bool>* stop = nullptr;  ///< set: ends it early; finished steps are kept
  /// Called after each step, with those that ended.
  std::function<void(const ScheduleMeasurement& so_far)> on_step{};
};

/// Memory that an engine needs to run the schedule: a place for each outstanding request.
[[nodiscard]] std::size_t memory_bytes(const Schedule& schedule, std::uint32_t depth);

/// UserError unless the target takes every command: alignment, size, and the right to write.
void check(const BlockTarget& target, const Schedule& schedule);

/// Runs the schedule on the target of the engine, which takes its commands: check(). The engine was
/// made with memory_bytes() and the depth. Returns when the last command has completed, though
/// the time of a step ends with its last operation. The first failed request ends it; those
/// outstanding are waited for.
[[nodiscard]] ScheduleMeasurement run_schedule(IoEngine& engine, const Schedule& schedule,
                                               const RunScheduleOptions& options);

}  // namespace kvreplay
