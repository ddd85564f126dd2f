#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvreplay {

/// "KEY=VALUE", the form of options.
struct KeyValue {
  std::string key;
  std::string value;  ///< may be empty, and may hold further '='
};

/// Splits at the first '='. None where there is no '=' or no key before it.
[[nodiscard]] inline std::optional<KeyValue> split_key_value(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) return std::nullopt;
  return KeyValue{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

}  // namespace kvreplay
