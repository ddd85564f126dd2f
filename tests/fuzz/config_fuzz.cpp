// JSON configurations: of a system, a model, a platform or a device, as the first byte says.

#include "devices/device_config.hpp"
#include "sim/replay/system.hpp"
#include "sim/time/model_spec.hpp"
#include "sim/time/platform.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

int kvreplay::fuzz::config_target(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  return kvreplay::fuzz::expect_user_error([&] {
    const auto node =
        kvreplay::ConfigNode::parse(kvreplay::fuzz::text_of(data + 1, size - 1), "fuzz.json");
    switch (data[0] % 4) {
      case 0:
        (void)kvreplay::SystemSpec::parse(node, "fuzz").resolved();
        break;
      case 1:
        (void)kvreplay::ModelSpec::parse(node, "fuzz").weight_bytes();
        break;
      case 2:
        (void)kvreplay::PlatformSpec::parse(node, "fuzz");
        break;
      default: {
        kvreplay::Simulation simulation;
        (void)kvreplay::DeviceSpec::parse(node).make(simulation);
      }
    }
  });
}
