#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "devices/schedule/schedule_measurement.hpp"

namespace kvreplay {

/// New results of a replay in progress.
struct ReplayPart {
  std::size_t first_request = 0;  ///< number of the first request in `measured`
  ScheduleMeasurement measured;   ///< steps since the last part, and requests that may have changed
};

/// The measurement of a replay in progress, in parts: one thread replays and records, another takes
/// the new results. Recording copies a step's times and no more, because it happens between
/// measured steps.
class ReplayParts {
 public:
  /// Call after each step.
  void note(const ScheduleMeasurement& so_far);
  /// Returns the steps that ended since the last call, and the times of requests since the first
  /// that was incomplete then, as many as a frame of devices/remote may hold; nothing where no step
  /// has ended.
  [[nodiscard]] std::optional<ReplayPart> take();

 private:
  std::mutex mutex_;
  std::vector<StepMeasurement> steps_;  ///< not yet taken
  std::size_t noted_steps_ = 0;
  std::vector<RequestTimes> requests_;  ///< of submitted requests, from number first_request_ on
  std::size_t first_request_ = 0;       ///< all before it are taken and complete
  std::size_t settled_ = 0;             ///< this many of requests_, from the first, are complete
};

/// Appends a part to the earlier ones. Throws UserError, naming `name`, where it does not follow
/// them.
void add_part(const ReplayPart& part, const std::string& name, ScheduleMeasurement& so_far);

}  // namespace kvreplay
