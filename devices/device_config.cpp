#include "devices/device_config.hpp"

namespace kvreplay {

DeviceSpec DeviceSpec::load(const std::string& file) {
  return parse(ConfigNode::load(file));
}

DeviceSpec DeviceSpec::parse(const ConfigNode& node) {
  DeviceSpec spec;
  spec.name = node.at("name").text();
  spec.title = node.at("title").text();
  if (node.has("notes")) spec.notes = node.at("notes").text();
  spec.device = PartConfig<Device>::parse(node, {"name", "title", "notes"});
  return spec;
}

}  // namespace kvreplay
