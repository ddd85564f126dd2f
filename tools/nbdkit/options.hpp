#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/config_folder.hpp"

namespace kvreplay {

/// What the plugin is given as KEY=VALUE on nbdkit's command line (docs/served-devices.md).
struct PluginOptions {
  std::string device;
  std::string configs = ConfigFolder::standard().folder();
  std::string file;         ///< empty: memory
  std::uint64_t bytes = 0;  ///< 0: the file's, or as much memory as the plugin chooses
  double spin_us = 50;
  std::string report;

  /// Throws UserError for an unknown key or a value out of its range. `absolute` makes a path one
  /// that holds in another working folder, too.
  void set(const std::string& key, const std::string& value,
           const std::function<std::string(const std::string&)>& absolute);
};

}  // namespace kvreplay
