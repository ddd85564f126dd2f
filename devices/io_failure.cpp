#include "devices/io_failure.hpp"

#include <array>
#include <cstdio>
#include <cstring>

namespace kvreplay {

UserError IoFailure::to_error(const std::string& device) const {
  const std::string what = std::string(command.write ? "write" : "read") + " of " +
                           std::to_string(command.bytes) + " bytes at offset " +
                           std::to_string(command.offset);
  const SourceLocation place{device, ""};
  if (unanswered_ns > 0) {
    std::array<char, 32> seconds{};
    std::snprintf(seconds.data(), seconds.size(), "%.2f",
                  static_cast<double>(unanswered_ns) * 1e-9);
    return {place, what + " has had no answer for " + seconds.data() + " s",
            "a device that answers, or a longer --request-timeout"};
  }
  if (error != 0) return {place, what + " failed (" + std::strerror(error) + ")", ""};
  return {place,
          what + " transferred only " + std::to_string(transferred_bytes) +
              " (the file has become shorter, or the device is full)",
          ""};
}

}  // namespace kvreplay
