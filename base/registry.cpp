#include "base/registry.hpp"

namespace kvreplay {

std::map<std::pair<std::string, std::string>, PartInfo>& part_catalogue() {
  static std::map<std::pair<std::string, std::string>, PartInfo> catalogue;
  return catalogue;
}

}  // namespace kvreplay
