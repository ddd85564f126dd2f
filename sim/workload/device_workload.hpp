#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "devices/device_config.hpp"
#include "devices/schedule/schedule.hpp"

namespace kvreplay {

/// What to request of a device.
struct WorkloadRequest {
  /// An experiment (a file or a name) of one cell, a file of a Schedule, or an I/O log (IoLog).
  std::string source{};
  std::string model_device{};  ///< the modelled device: a name or a file
  std::vector<std::string>
      sets{};              ///< KEY=VALUE; for a schedule or a log, only device.PARAMETER=VALUE
  std::int64_t steps = 0;  ///< upper limit; 0 = all
  bool prefill = false;    ///< of an experiment: the prompt, as one step, and not the decode steps
  ConfigFolder configs = ConfigFolder::standard();
  bool show_progress = false;  ///< while an experiment is replayed
};

/// The decode steps of an experiment, a schedule or a log, for both the modelled device and a real
/// one.
struct DeviceWorkload {
  Schedule schedule;
  DeviceSpec model;
  std::string trace;            ///< trace file of the experiment; "" without one
  nlohmann::ordered_json from;  ///< provenance
  std::size_t left_out = 0;     ///< log entries that neither read nor write
};

/// Throws UserError where the source is of no known kind.
[[nodiscard]] DeviceWorkload load_device_workload(const WorkloadRequest& request);

}  // namespace kvreplay
