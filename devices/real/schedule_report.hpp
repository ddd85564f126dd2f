#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "devices/real/latency_summary.hpp"
#include "devices/schedule/schedule.hpp"
#include "devices/schedule/schedule_measurement.hpp"

namespace kvreplay {

/// Compares one schedule on a model and on a real device. Errors are the model's: modelled /
/// measured - 1.
class ScheduleComparison {
 public:
  /// `modelled` has all steps, `measured` those that ended. All arguments must outlive the
  /// comparison.
  ScheduleComparison(const Schedule& schedule, const ScheduleMeasurement& modelled,
                     const ScheduleMeasurement& measured);

  /// Absolute errors of the step latencies; `mean` is signed, the error of the sum.
  struct StepErrors {
    double mean = 0;
    double median = 0;
    double p90 = 0;
    double max = 0;
  };
  [[nodiscard]] StepErrors step_errors() const;

  /// One row per step: docs/real-devices.md.
  [[nodiscard]] std::string steps_csv() const;
  /// The latencies of requests at every tenth of a percent: percent, modelled_us, measured_us.
  [[nodiscard]] std::string latencies_csv() const;
  [[nodiscard]] nlohmann::ordered_json summary() const;
  /// The summary as readable text.
  [[nodiscard]] std::string table() const;

 private:
  /// The model or the device.
  struct Side {
    const ScheduleMeasurement* measurement = nullptr;
    std::vector<std::int64_t> latencies_ns;  ///< ascending; requests that completed on both sides
    std::vector<LatencySummary> by_step;
    LatencySummary all;
    LatencySummary reads;
    LatencySummary writes;
    double seconds = 0;  ///< over the steps that ended on both sides
    double exposed_io_seconds = 0;
    double busy_io_seconds = 0;
    double compute_seconds = 0;
    std::int64_t bytes = 0;

    [[nodiscard]] double mb_s() const;  ///< while at least one request is under way
    [[nodiscard]] nlohmann::ordered_json summary() const;
  };
  [[nodiscard]] Side side(const ScheduleMeasurement& measurement) const;
  [[nodiscard]] double error(std::size_t step) const;

  const Schedule& schedule_;
  std::size_t steps_;                       ///< steps that ended on both sides
  std::vector<std::size_t> step_begin_;     ///< [steps + 1], of the commands
  std::vector<std::int64_t> scheduled_ns_;  ///< by step: of its computations
  std::vector<bool> completed_;             ///< by command: whether it completed on both sides
  Side modelled_;
  Side measured_;
};

}  // namespace kvreplay
