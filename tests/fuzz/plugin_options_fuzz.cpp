// Options of the nbdkit plugin: a line each, KEY=VALUE.

#include <sstream>

#include "base/key_value.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"
#include "tools/nbdkit/options.hpp"

int kvreplay::fuzz::plugin_options_target(const std::uint8_t* data, std::size_t size) {
  return kvreplay::fuzz::expect_user_error([&] {
    kvreplay::PluginOptions options;
    std::istringstream lines{std::string(kvreplay::fuzz::text_of(data, size))};
    for (std::string line; std::getline(lines, line);) {
      const auto given = kvreplay::split_key_value(line);
      if (!given) continue;
      options.set(given->key, given->value, [](const std::string& path) { return path; });
    }
  });
}
