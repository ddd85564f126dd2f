#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "devices/io_failure.hpp"
#include "devices/schedule/schedule.hpp"

namespace kvreplay {

/// A step of a schedule, on a model or on a real device.
struct StepMeasurement {
  std::int64_t latency_ns = 0;
  std::int64_t compute_ns = 0;  ///< time spent in computations
  std::int64_t busy_io_ns = 0;  ///< time with at least one command in progress
  // Commands that the step submits:
  std::int64_t read_bytes = 0;
  std::int64_t read_requests = 0;
  std::int64_t write_bytes = 0;
  std::int64_t write_requests = 0;

  /// Time in which the processor waits, or is busy with submitting.
  [[nodiscard]] std::int64_t exposed_io_ns() const { return latency_ns - compute_ns; }
  void count(const IoCommand& command) {
    (command.write ? write_bytes : read_bytes) += command.bytes;
    (command.write ? write_requests : read_requests) += 1;
  }
  friend bool operator==(const StepMeasurement&, const StepMeasurement&) = default;
};

/// Nanoseconds since the schedule began; negative where the event did not happen.
struct RequestTimes {
  std::int64_t requested_ns = -1;  ///< the schedule submits it; it may then wait for the queue
  std::int64_t completed_ns = -1;  ///< its last byte has arrived

  [[nodiscard]] bool completed() const { return completed_ns >= 0; }
  [[nodiscard]] std::int64_t latency_ns() const { return completed_ns - requested_ns; }
  friend bool operator==(const RequestTimes&, const RequestTimes&) = default;
};

/// Outcome of a schedule.
struct ScheduleMeasurement {
  std::vector<StepMeasurement> steps;  ///< the steps that ended
  std::vector<RequestTimes> requests;  ///< by command number, for all commands of the schedule
  bool interrupted = false;
  std::optional<IoFailure> failure;  ///< what ended it early

  [[nodiscard]] bool partial() const { return interrupted || failure.has_value(); }
};

/// As compact JSON, for sending.
[[nodiscard]] std::string to_json(const ScheduleMeasurement& measurement);
/// Throws UserError, naming `name`, where the text is not a measurement.
[[nodiscard]] ScheduleMeasurement parse_schedule_measurement(const std::string& json,
                                                             const std::string& name);

/// Throws UserError, naming `name`, unless `measured` can be what the schedule's steps from
/// `first_step` and requests from `first_request` on gave: no more of either than the schedule has,
/// the bytes and requests that it has in each step, and times of at most some months.
void check_measurement(const ScheduleMeasurement& measured, const Schedule& schedule,
                       std::size_t first_step, std::size_t first_request, const std::string& name);
/// The longest text that such a measurement of the whole schedule takes.
[[nodiscard]] std::size_t longest_measurement(const Schedule& schedule);

}  // namespace kvreplay
