#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvreplay {

/// What stands between the separators, also where it is empty: one more than there are separators.
[[nodiscard]] inline std::vector<std::string> split_text(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char character : text) {
    if (character == separator) {
      parts.emplace_back();
    } else {
      parts.back() += character;
    }
  }
  return parts;
}

}  // namespace kvreplay
