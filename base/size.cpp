#include "base/size.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace kvreplay {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 10> kUnits{{
    {"B", 1},
    {"kB", 1e3},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"KiB", 0x1p10},
    {"MiB", 0x1p20},
    {"GiB", 0x1p30},
    {"TiB", 0x1p40},
}};

}  // namespace

std::optional<std::int64_t> parse_size(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = number * factor;
    if (!(bytes >= 0 && bytes <= 0x1p53) || bytes != std::floor(bytes)) return std::nullopt;
    return static_cast<std::int64_t>(bytes);
  }
  return std::nullopt;
}

std::string size_text(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (number >= 1024 && unit + 1 < kNames.size()) {
    number /= 1024;
    ++unit;
  }
  std::array<char, 32> buffer{};
  const int decimals = unit == 0 ? 0 : 1;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number,
                                 std::chars_format::fixed, decimals)
                       .ptr;
  return std::string(buffer.data(), end) + " " + kNames[unit];
}

}  // namespace kvreplay
