#include "tools/kvreplay/option_values.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace kvreplay {

std::string read_size(std::string& text) {
  constexpr std::string_view kLetters = "kmgt";
  // Far beyond any device, and no sum or product of offsets below it wraps.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  std::string wrong = "found '" + text + "'; allowed: a whole number such as 512, 24K or 2G";

  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return wrong;
  std::string unit(text.substr(static_cast<std::size_t>(end - text.data())));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  if (unit.starts_with(' ')) unit.erase(0, 1);
  std::uint64_t factor = 1;
  if (!unit.empty() && unit != "b") {
    const std::size_t power = kLetters.find(unit.front());
    const std::string_view rest = std::string_view(unit).substr(1);
    if (power == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) {
      return wrong;
    }
    factor <<= 10 * (power + 1);
  }
  if (number > kMost / factor) return wrong + ", at most 2^62";
  text = std::to_string(number * factor);
  return {};
}

}  // namespace kvreplay
