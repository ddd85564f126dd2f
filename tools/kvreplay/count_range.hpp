#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {

/// in_range() of a number of tokens or steps, which may be written as 16K (read_count()).
inline CLI::Validator in_count_range(std::int64_t min, std::int64_t max) {
  const auto read = [check = in_range(min, max)](std::string& text) -> std::string {
    std::string number = text;
    if (read_count(number).empty() && check(number).empty()) {
      text = number;
      return {};
    }
    const bool digits = text.find_first_not_of("-0123456789") == std::string::npos;
    // A text with a letter is no number to in_range(), however small it is.
    return check(text) + (digits ? "" : ", such as 512 or 16K");
  };
  return {read, ""};
}

}  // namespace kvreplay
