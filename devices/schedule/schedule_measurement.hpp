#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "devices/io_failure.hpp"

namespace kvreplay {

/// A step of a schedule, on a model or for real.
struct StepMeasurement {
  std::int64_t latency_ns = 0;
  std::int64_t compute_ns = 0;  ///< as long as the computations took
  std::int64_t busy_io_ns = 0;  ///< at least one command is under way
  // Of the commands that the step submits.
  std::int64_t read_bytes = 0;
  std::int64_t read_requests = 0;
  std::int64_t write_bytes = 0;
  std::int64_t write_requests = 0;

  /// The processor waits, or is busy with submitting.
  [[nodiscard]] std::int64_t exposed_io_ns() const { return latency_ns - compute_ns; }
  void count(const IoCommand& command) {
    (command.write ? write_bytes : read_bytes) += command.bytes;
    (command.write ? write_requests : read_requests) += 1;
  }
  friend bool operator==(const StepMeasurement&, const StepMeasurement&) = default;
};

/// Nanoseconds since the schedule began; negative where that did not happen.
struct RequestTimes {
  std::int64_t asked_ns = -1;      ///< the schedule submits it; it may then wait for the queue
  std::int64_t completed_ns = -1;  ///< its last byte is there

  [[nodiscard]] bool completed() const { return completed_ns >= 0; }
  [[nodiscard]] std::int64_t latency_ns() const { return completed_ns - asked_ns; }
  friend bool operator==(const RequestTimes&, const RequestTimes&) = default;
};

/// What became of a schedule.
struct ScheduleMeasurement {
  std::vector<StepMeasurement> steps;  ///< those that ended
  std::vector<RequestTimes> requests;  ///< by number of the command, all of the schedule's
  bool interrupted = false;
  std::optional<IoFailure> failure;  ///< what ended it early

  [[nodiscard]] bool partial() const { return interrupted || failure.has_value(); }
};

/// As compact JSON, to send it.
[[nodiscard]] std::string to_json(const ScheduleMeasurement& measurement);
/// UserError, which names `name`, where it is not one.
[[nodiscard]] ScheduleMeasurement parse_schedule_measurement(const std::string& json,
                                                             const std::string& name);

}  // namespace kvreplay
