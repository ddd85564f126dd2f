#pragma once

#include <string>

namespace kvreplay {

/// The program's version, "0.1.0".
[[nodiscard]] std::string version();
/// The folder of the checkout that was built; it contains scripts, configs and the shipped traces.
[[nodiscard]] std::string source_folder();

}  // namespace kvreplay
