#include "base/build_info.hpp"

namespace kvreplay {

std::string version() {
  return KVREPLAY_VERSION;
}
std::string source_folder() {
  return KVREPLAY_SOURCE_DIR;
}

}  // namespace kvreplay
