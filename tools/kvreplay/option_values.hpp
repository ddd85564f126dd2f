#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace kvreplay {

// The messages of these validators end a line that begins with the option's name.

/// The limits of a size.
struct SizeOption {
  std::string example = "24KiB";
  std::uint64_t min = 0;
  std::uint64_t max = std::uint64_t{1} << 62;
};

/// Parses a size in bytes (base/size.hpp). Replaces the text by the number, or returns what is
/// wrong.
[[nodiscard]] std::string read_size(std::string& text, const SizeOption& option);
/// The same for a number of tokens: "512", "16K".
[[nodiscard]] std::string read_count(std::string& text);

/// An option that takes sizes; a list where `value` is a vector.
template <typename Value>
CLI::Option* add_size_option(CLI::App& command, const std::string& name, Value& value,
                             const std::string& help, SizeOption size = {}) {
  const auto read = [size = std::move(size)](std::string& text) { return read_size(text, size); };
  return command.add_option(name, value, help)
      ->transform(CLI::Validator(read, ""))
      ->type_name("SIZE");
}

/// Both ends belong to the range. Unlike CLI::Range, it refuses "nan", a negative number that
/// would wrap, and one that the type cannot hold.
template <typename Number>
CLI::Validator in_range(Number min, Number max) {
  std::ostringstream ends;
  ends << min << " to " << max;
  const auto check = [min, max, ends = ends.str()](const std::string& text) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool read = error == std::errc() && end == text.data() + text.size();
    // Written so that a NaN fails.
    if (read && number >= min && number <= max) return std::string{};
    const std::string kind = std::is_integral_v<Number> ? "an integer" : "a number";
    return "found '" + text + "'; allowed: " + kind + " from " + ends;
  };
  return {check, CLI::detail::type_name<Number>() + std::string(" in [") + ends.str() + "]"};
}

/// The number of a token, a layer or a head of a trace; the command checks whether the trace has
/// it.
inline CLI::Validator number_range() {
  return in_range(std::int64_t{0}, std::int64_t{1} << 31);
}

/// One of the names. The error about another name suggests the nearest one.
inline CLI::Validator one_of(std::vector<std::string> names) {
  const auto check = [names = std::move(names)](const std::string& text) -> std::string {
    if (std::find(names.begin(), names.end(), text) != names.end()) return "";
    return unknown_name({}, "value", text, names).what();
  };
  return {check, ""};
}
template <typename Value>
CLI::Validator one_of(const std::map<std::string, Value>& by_name) {
  std::vector<std::string> names;
  names.reserve(by_name.size());
  for (const auto& [name, value] : by_name) names.push_back(name);
  return one_of(std::move(names));
}

/// Any seed that the generator takes.
inline CLI::Validator seed_range() {
  return in_range(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
}

/// --create SIZE, where 0 bytes would mean no file.
inline void add_create_option(CLI::App& command, std::uint64_t& bytes) {
  add_size_option(command, "--create", bytes,
                  "Create TARGET as a new file of this size, which is removed at the end",
                  {.example = "2GiB", .min = 1});
}

/// A comma list; each value is checked.
inline CLI::Option* as_list(CLI::Option* option) {
  return option->delimiter(',')->allow_extra_args(false);
}

}  // namespace kvreplay
