#pragma once

#include <string>

namespace kvreplay {

/// The text in single quotes, so that a POSIX shell takes it as one literal word.
[[nodiscard]] std::string shell_quoted(const std::string& text);

/// The same, without quotes where the text needs none; for people.
[[nodiscard]] std::string shell_word(const std::string& text);

}  // namespace kvreplay
