#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace kvreplay {

/// The subcommands of `kvreplay device`.
void add_device_describe(CLI::App& device);
void add_device_probe(CLI::App& device);
void add_device_calibrate(CLI::App& device);

/// An option that takes sizes such as 512, 24K, 1M or 2GiB (K, M, G are powers of 1024). A list
/// where `value` is a vector.
template <typename Value>
CLI::Option* add_size_option(CLI::App& command, const std::string& name, Value& value,
                             const std::string& help) {
  return command.add_option(name, value, help)->transform(CLI::AsSizeValue(false));
}

/// A comma list, each value of which is checked.
inline CLI::Option* as_list(CLI::Option* option) {
  return option->delimiter(',')->allow_extra_args(false);
}

/// "512", "24K", "1M": as add_size_option reads it.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

}  // namespace kvreplay
