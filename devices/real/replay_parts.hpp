#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "devices/schedule/schedule_measurement.hpp"

namespace kvreplay {

/// What is new of a replay that goes on.
struct ReplayPart {
  std::size_t first_request = 0;  ///< the number of the first of `measured`
  ScheduleMeasurement measured;   ///< steps since the last part; requests that may have changed
};

/// The measurement of a replay that goes on, in parts: one thread replays and notes, a second takes
/// what is new. Noting copies a step's times and no more, because it happens between steps that are
/// measured.
class ReplayParts {
 public:
  /// After a step.
  void note(const ScheduleMeasurement& so_far);
  /// Steps that ended since the last call, and the times of requests since the first that was not
  /// complete then, as many as a frame of devices/remote may hold; nothing where no step has ended.
  [[nodiscard]] std::optional<ReplayPart> take();

 private:
  std::mutex mutex_;
  std::vector<StepMeasurement> steps_;  ///< those not taken
  std::size_t noted_steps_ = 0;
  std::vector<RequestTimes> requests_;  ///< those asked for, from number first_request_ on
  std::size_t first_request_ = 0;       ///< all before are taken and complete
  std::size_t settled_ = 0;             ///< of requests_: so many from the first are complete
};

/// Adds a part to those before it. UserError, which names `name`, where it does not follow them.
void add_part(const ReplayPart& part, const std::string& name, ScheduleMeasurement& so_far);

}  // namespace kvreplay
