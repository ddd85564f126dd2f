#pragma once

#include <string>

#include "base/build_info.hpp"

namespace kvreplay {

/// The configs/ of the source tree that the tests were built from.
inline const std::string kConfigs = source_folder() + "/configs";

}  // namespace kvreplay
