#include "devices/device_config.hpp"

#include <filesystem>
#include <span>
#include <utility>
#include <vector>

namespace kvreplay {

DeviceSpec DeviceSpec::load(const std::string& file, const ConfigFolder& configs) {
  return parse(configs.load("devices", file));
}

DeviceSpec DeviceSpec::parse(const ConfigNode& node) {
  static const std::vector<std::string> kRequired{"title", "part"};
  const auto part =
      node.has("part") ? part_catalogue().find({std::string(Device::kRole), node.at("part").text()})
                       : part_catalogue().end();
  check_complete(
      node, kRequired,
      part == part_catalogue().end() ? std::span<const Parameter>() : part->second.parameters);
  DeviceSpec spec;
  ConfigHeader header =
      ConfigHeader::parse(node, std::filesystem::path(node.place().file).stem().string());
  spec.name = std::move(header.name);
  spec.title = std::move(header.title);
  spec.source = std::move(header.source);
  spec.notes = std::move(header.notes);
  spec.device = PartConfig<Device>::parse(node, ConfigHeader::members());
  return spec;
}

}  // namespace kvreplay
