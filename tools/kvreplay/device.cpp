#include "tools/kvreplay/device.hpp"

#include "tools/kvreplay/commands.hpp"

namespace kvreplay {

std::string size_text(std::uint64_t bytes) {
  for (const auto& [shift, letter] : {std::pair{30, "G"}, {20, "M"}, {10, "K"}}) {
    const std::uint64_t unit = std::uint64_t{1} << shift;
    if (bytes >= unit && bytes % unit == 0) return std::to_string(bytes / unit) + letter;
  }
  return std::to_string(bytes);
}

void add_device(CLI::App& program) {
  CLI::App* device = program.add_subcommand(
      "device", "Describe a device model, measure a real device, fit one to the other");
  device->require_subcommand(1);
  device->footer(
      "Examples:\n"
      "  kvreplay device describe ufs40\n"
      "  kvreplay device probe /data/test.bin --create 2G --out probe.json\n"
      "  kvreplay device calibrate probe.json --out configs/devices/mine.json");
  add_device_describe(*device);
  add_device_probe(*device);
  add_device_calibrate(*device);
}

}  // namespace kvreplay
