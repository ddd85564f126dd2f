#pragma once

#include <string>
#include <utility>
#include <vector>

#include "devices/device_config.hpp"
#include "devices/measure.hpp"
#include "sim/base/config.hpp"

namespace kvreplay::test {

using Overrides = std::vector<std::pair<std::string, std::string>>;

inline ConfigNode flash_config(const Overrides& overrides) {
  ConfigNode node = ConfigNode::parse(R"({
      "name": "test", "title": "a device for tests", "part": "flash",
      "queue_depth": 32, "logical_block_bytes": 512, "max_transfer_bytes": 1048576,
      "command_latency_us": 20, "command_overhead_us": 2,
      "channels": 4, "dies_per_channel": 2, "planes": 2, "program_pages": 1,
      "page_bytes": 16384, "read_unit_bytes": 4096, "read_us": 40, "program_us": 400,
      "channel_mb_s": 800, "link_mb_s": 4000, "link_duplex": "full",
      "write_buffer_bytes": 1048576})",
                                      "test.json");
  for (const auto& [path, value] : overrides) node = node.with(path, value);
  return node;
}

/// A flash device whose limits are all generous but for `overrides`.
inline DeviceSpec flash(const Overrides& overrides = {}) {
  return DeviceSpec::parse(flash_config(overrides));
}

inline DeviceSpec preset(const std::string& name) {
  return DeviceSpec::load(std::string(KVREPLAY_SOURCE_DIR) + "/configs/devices/" + name + ".json");
}

}  // namespace kvreplay::test
