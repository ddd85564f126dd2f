#include "tools/kvreplay/option_values.hpp"

#include "base/size.hpp"

namespace kvreplay {

std::string read_size(std::string& text, const SizeOption& option) {
  std::string wrong = "found '" + text +
                      "'; allowed: a whole number such as 4096 or a size such as " + option.example;
  const std::optional<std::int64_t> bytes = parse_size(text);
  if (!bytes) return wrong;
  const auto size = static_cast<std::uint64_t>(*bytes);
  if (size < option.min) return wrong + ", at least " + short_size_text(option.min);
  if (size > option.max) return wrong + ", at most " + short_size_text(option.max);
  text = std::to_string(size);
  return {};
}

std::string read_count(std::string& text) {
  const std::optional<std::int64_t> count = parse_count(text);
  if (!count) return "found '" + text + "'; allowed: a whole number such as 512, 24K or 2M";
  text = std::to_string(*count);
  return {};
}

}  // namespace kvreplay
