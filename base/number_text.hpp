#pragma once

#include <cstdio>
#include <string>

namespace kvreplay {

/// With `decimals` digits after the point: fixed_text(1.25, 1) is "1.2". "nan" or "inf" for a value
/// that is not finite.
[[nodiscard]] std::string fixed_text(double value, int decimals);

/// The shortest text that reads back as the same number.
[[nodiscard]] std::string shortest_text(double value);

/// Formats like printf.
template <typename... Values>
[[nodiscard]] std::string format_text(const char* pattern, const Values&... values) {
  std::string text(static_cast<std::size_t>(std::snprintf(nullptr, 0, pattern, values...)), '\0');
  std::snprintf(text.data(), text.size() + 1, pattern, values...);
  return text;
}

/// How far a ratio is from 1, with its sign: error_percent_text(1.02) is "+2.0%".
[[nodiscard]] std::string error_percent_text(double ratio);

}  // namespace kvreplay
