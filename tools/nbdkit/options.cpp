#include "tools/nbdkit/options.hpp"

#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/size.hpp"

namespace kvreplay {
namespace {

constexpr double kMaxSpinUs = 10'000;

std::uint64_t size_of(const std::string& text) {
  const std::optional<std::int64_t> bytes = parse_size(text);
  if (!bytes || *bytes == 0) {
    throw UserError({"", "size"}, "found " + text, "a size such as 4GiB or 512M");
  }
  return static_cast<std::uint64_t>(*bytes);
}

double parse_spin(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !(value >= 0) ||
      value > kMaxSpinUs) {
    throw UserError({"", "spin_us"}, "found " + std::string(text), "0 to 10000 us");
  }
  return value;
}

}  // namespace

void PluginOptions::set(const std::string& key, const std::string& value,
                        const std::function<std::string(const std::string&)>& absolute) {
  if (key == "device") {
    const bool is_path = value.find('/') != std::string::npos || value.ends_with(".json");
    device = is_path ? absolute(value) : value;
  } else if (key == "configs") {
    configs = absolute(value);
  } else if (key == "file") {
    file = absolute(value);
  } else if (key == "size") {
    bytes = size_of(value);
  } else if (key == "spin_us") {
    spin_us = parse_spin(value);
  } else if (key == "report") {
    report = absolute(value);
  } else {
    const std::vector<std::string> keys{"configs", "device", "file", "report", "size", "spin_us"};
    throw unknown_name({}, "parameter", key, keys);
  }
}

}  // namespace kvreplay
