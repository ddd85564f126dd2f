#pragma once

#include <memory>
#include <string>

#include "base/config.hpp"
#include "base/registry.hpp"
#include "devices/device.hpp"

namespace kvreplay {

/// A device as a preset describes it: {"name", "title", "notes", "part", and the part's
/// parameters}.
struct DeviceSpec {
  std::string name;   ///< "ufs40"
  std::string title;  ///< one line: which device it represents
  std::string notes;  ///< how far to trust it; may be empty
  PartConfig<Device> device;

  [[nodiscard]] static DeviceSpec load(const std::string& file);
  [[nodiscard]] static DeviceSpec parse(const ConfigNode& node);

  [[nodiscard]] std::unique_ptr<Device> make(Simulation& simulation) const {
    return device.make({simulation});
  }
};

}  // namespace kvreplay
