#pragma once

#include <string>

#include "sim/replay/experiment.hpp"

namespace kvreplay {

/// docs/systems/NAME.md: what a system is, how it differs from its source, its parts and
/// parameters.
[[nodiscard]] std::string system_page(const SystemSpec& system);

/// docs/systems/README.md: every system with its page.
[[nodiscard]] std::string system_index(const ConfigFolder& configs);

}  // namespace kvreplay
