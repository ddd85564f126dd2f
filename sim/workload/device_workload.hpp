#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "devices/device_config.hpp"
#include "devices/schedule/schedule.hpp"

namespace kvreplay {

/// What a device is to be asked for.
struct WorkloadRequest {
  /// An experiment (a file or a name) of one cell, a file of a Schedule, or an I/O log (IoLog).
  std::string source{};
  std::string model_device{};       ///< the modelled device: a name or a file
  std::vector<std::string> sets{};  ///< KEY=VALUE; of a schedule or a log, device.PARAMETER alone
  std::int64_t steps = 0;           ///< at most; 0 = all
  ConfigFolder configs = ConfigFolder::standard();
  bool show_progress = false;  ///< of the replay of an experiment
};

/// The decode steps of an experiment, a schedule or a log, for the modelled device and a real one.
struct DeviceWorkload {
  Schedule schedule;
  DeviceSpec model;
  std::string trace;            ///< file; "" unless it is an experiment's
  nlohmann::ordered_json from;  ///< provenance
  std::size_t left_out = 0;     ///< requests of a log that neither read nor write
};

/// UserError where the source is none of what it may be.
[[nodiscard]] DeviceWorkload load_device_workload(const WorkloadRequest& request);

}  // namespace kvreplay
