#pragma once

#include "devices/device_config.hpp"
#include "devices/schedule/schedule.hpp"
#include "devices/schedule/schedule_measurement.hpp"

namespace kvreplay {

/// Runs the schedule in virtual time on a new device of this kind. The commands must suit its
/// limits; throws UserError otherwise.
[[nodiscard]] ScheduleMeasurement time_schedule(const Schedule& schedule, const DeviceSpec& device);

}  // namespace kvreplay
