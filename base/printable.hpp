#pragma once

#include <string>
#include <string_view>

namespace kvreplay {

/// The text with control characters written as \n, \t or \x1b, because text from a file may hold
/// sequences that control a terminal.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace kvreplay
