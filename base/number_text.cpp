#include "base/number_text.hpp"

#include <array>
#include <charconv>

namespace kvreplay {

std::string fixed_text(double value, int decimals) {
  std::array<char, 400> buffer{};  // 309 digits before the point at most
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::fixed, decimals)
                       .ptr;
  return {buffer.data(), end};
}

std::string shortest_text(double value) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

std::string error_percent_text(double ratio) {
  return format_text("%+.1f%%", 100 * (ratio - 1));
}

}  // namespace kvreplay
