#include "base/registry.hpp"

namespace kvreplay {

std::map<std::pair<std::string, std::string>, PartInfo>& part_catalogue() {
  static std::map<std::pair<std::string, std::string>, PartInfo> catalogue;
  return catalogue;
}

std::vector<std::string>& twice_registered_parts() {
  static std::vector<std::string> lines;
  return lines;
}

}  // namespace kvreplay
