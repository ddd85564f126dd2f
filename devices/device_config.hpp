#pragma once

#include <memory>
#include <string>

#include "base/config.hpp"
#include "base/config_folder.hpp"
#include "base/registry.hpp"
#include "devices/device.hpp"

namespace kvreplay {

/// A device as a preset describes it: {"title", "name", "source", "notes", "part", and the part's
/// parameters}. Without a name it has that of its file.
struct DeviceSpec {
  std::string name;    ///< "ufs40"
  std::string title;   ///< one line: which device it represents
  std::string source;  ///< may be empty: each parameter has its own
  std::string notes;   ///< how far to trust it; may be empty
  PartConfig<Device> device;

  [[nodiscard]] static DeviceSpec load(const std::string& file,
                                       const ConfigFolder& configs = ConfigFolder::standard());
  [[nodiscard]] static DeviceSpec parse(const ConfigNode& node);

  [[nodiscard]] std::unique_ptr<Device> make(Simulation& simulation) const {
    return device.make({simulation});
  }
};

}  // namespace kvreplay
