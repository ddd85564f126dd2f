#pragma once

#include <string>
#include <string_view>

namespace kvreplay {

/// The text with control characters as \n, \t or \x1b: what a file says of itself may hold
/// sequences that steer a terminal.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace kvreplay
