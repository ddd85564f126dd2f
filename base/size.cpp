#include "base/size.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/number_text.hpp"

namespace kvreplay {
namespace {

// Far beyond any device. No sum or product of offsets below this limit wraps.
constexpr std::int64_t kMax = std::int64_t{1} << 62;

constexpr std::array<std::pair<std::string_view, std::int64_t>, 10> kUnits{{
    {"B", 1},
    {"kB", 1'000},
    {"KB", 1'000},
    {"MB", 1'000'000},
    {"GB", 1'000'000'000},
    {"TB", 1'000'000'000'000},
    {"KiB", std::int64_t{1} << 10},
    {"MiB", std::int64_t{1} << 20},
    {"GiB", std::int64_t{1} << 30},
    {"TiB", std::int64_t{1} << 40},
}};

/// Of K, M, G or T, in either case; 0 of anything else.
std::int64_t letter_factor(std::string_view unit) {
  constexpr std::string_view kLetters = "KMGTkmgt";
  if (unit.size() != 1) return 0;
  const std::size_t at = kLetters.find(unit.front());
  return at == std::string_view::npos ? 0 : std::int64_t{1} << (10 * (at % 4 + 1));
}

std::int64_t unit_factor(std::string_view unit) {
  for (const auto& [name, factor] : kUnits) {
    if (unit == name) return factor;
  }
  return 0;
}

/// The text up to the end of its number, and the rest. None where the text does not begin with a
/// digit.
struct Split {
  std::string_view number;
  std::string_view unit;
  bool whole = false;
};

std::optional<Split> split(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  std::size_t end = std::min(text.find_first_not_of(kDigits), text.size());
  if (end == 0) return std::nullopt;
  const bool whole = end == text.size() || text[end] != '.';
  if (!whole) end = std::min(text.find_first_not_of(kDigits, end + 1), text.size());
  Split parts{text.substr(0, end), text.substr(end), whole};
  if (parts.unit.starts_with(' ')) {
    parts.unit.remove_prefix(1);
    if (parts.unit.empty()) return std::nullopt;
  }
  return parts;
}

std::optional<std::int64_t> times(const Split& parts, std::int64_t factor) {
  const char* const begin = parts.number.data();
  const char* const end = begin + parts.number.size();
  if (parts.whole) {
    std::int64_t number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc()) return std::nullopt;
    if (number > kMax / factor) return std::nullopt;
    return number * factor;
  }
  double number = 0;
  if (std::from_chars(begin, end, number).ec != std::errc()) return std::nullopt;
  const double bytes = number * static_cast<double>(factor);
  if (bytes > static_cast<double>(kMax) || bytes != std::floor(bytes)) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

std::optional<std::int64_t> parse_size_with_unit(std::string_view text) {
  const std::optional<Split> parts = split(text);
  if (!parts) return std::nullopt;
  std::int64_t factor = unit_factor(parts->unit);
  if (factor == 0 && parts->whole) factor = letter_factor(parts->unit);
  return factor == 0 ? std::nullopt : times(*parts, factor);
}

std::optional<std::int64_t> parse_size(std::string_view text) {
  const std::optional<Split> parts = split(text);
  if (parts && parts->whole && parts->unit.empty()) return times(*parts, 1);
  return parse_size_with_unit(text);
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  const std::optional<Split> parts = split(text);
  if (!parts || !parts->whole) return std::nullopt;
  const std::int64_t factor = parts->unit.empty() ? 1 : letter_factor(parts->unit);
  return factor == 0 ? std::nullopt : times(*parts, factor);
}

std::string size_text(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (number >= 1024 && unit + 1 < kNames.size()) {
    number /= 1024;
    ++unit;
  }
  return fixed_text(number, unit == 0 ? 0 : 1) + " " + kNames[unit];
}

std::string decimal_size_text(double bytes) {
  static constexpr std::array<const char*, 6> kNames{"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  // From 999.5 on, three digits round to the next unit.
  for (; std::abs(bytes) >= 999.5 && unit + 1 < kNames.size(); ++unit) bytes /= 1000;
  const double size = std::abs(bytes);
  const int decimals = unit == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fixed_text(bytes, decimals) + " " + kNames[unit];
}

std::string short_size_text(std::uint64_t bytes) {
  for (const auto& [shift, letter] : {std::pair{30, 'G'}, {20, 'M'}, {10, 'K'}}) {
    const std::uint64_t unit = std::uint64_t{1} << shift;
    if (bytes >= unit && bytes % unit == 0) return std::to_string(bytes / unit) + letter;
  }
  return std::to_string(bytes);
}

}  // namespace kvreplay
