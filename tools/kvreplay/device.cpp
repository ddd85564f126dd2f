#include "tools/kvreplay/device.hpp"

#include "base/key_value.hpp"
#include "tools/kvreplay/commands.hpp"

namespace kvreplay {

CLI::Option* add_set_option(CLI::App& command, std::vector<std::string>& sets) {
  return command
      .add_option("--set", sets,
                  "A parameter of the device, such as command_queue=false; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
}

ConfigNode with_sets(ConfigNode preset, const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    const std::optional<KeyValue> given = split_key_value(set);
    if (!given) throw UserError({"", "--set"}, "found '" + set + "'", "NAME=VALUE");
    preset = preset.with(given->key, given->value);
  }
  return preset;
}

void add_device(CLI::App& program) {
  CLI::App* device = program.add_subcommand("device",
                                            "Describe a device model, make one from a data sheet, "
                                            "measure a real device, fit and compare");
  device->require_subcommand(1);
  device->footer(
      "Examples:\n"
      "  kvreplay device describe ufs40 --plot ufs40.png\n"
      "  kvreplay device new --from-spec read=4300MB/s,random_read=500kIOPS --base ufs40 --out "
      "ufs41.json\n"
      "  kvreplay device compare ufs40\n"
      "  kvreplay device probe /data/test.bin --create 2G --out probe.json\n"
      "  kvreplay device calibrate probe.json --out configs/devices/mine.json\n"
      "  kvreplay device replay first --set system=kvswap --model-device mine --target "
      "/data/test.bin --create 2G --out results/real");
  add_device_describe(*device);
  add_device_compare(*device);
  add_device_probe(*device);
  add_device_calibrate(*device);
  add_device_new(*device);
  add_device_replay(*device);
}

}  // namespace kvreplay
