#pragma once

#include <cstddef>
#include <cstdint>

namespace kvreplay::fuzz {

// Each takes any bytes as a file, or as texts, of its kind, and returns 0. Anything but reading
// them or refusing them in one line ends the program.

int access_log_target(const std::uint8_t* data, std::size_t size);
int agent_target(const std::uint8_t* data, std::size_t size);
int config_target(const std::uint8_t* data, std::size_t size);
int io_log_target(const std::uint8_t* data, std::size_t size);
int measurement_target(const std::uint8_t* data, std::size_t size);
int model_file_target(const std::uint8_t* data, std::size_t size);
int plugin_options_target(const std::uint8_t* data, std::size_t size);
int schedule_target(const std::uint8_t* data, std::size_t size);
int settings_target(const std::uint8_t* data, std::size_t size);
int stored_target(const std::uint8_t* data, std::size_t size);
int trace_target(const std::uint8_t* data, std::size_t size);

}  // namespace kvreplay::fuzz
