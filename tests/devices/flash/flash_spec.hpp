#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/build_info.hpp"
#include "base/config.hpp"
#include "base/random.hpp"
#include "devices/calibration/measure.hpp"
#include "devices/device_config.hpp"

namespace kvreplay::test {

using Overrides = std::vector<std::pair<std::string, std::string>>;

inline ConfigNode flash_config(const Overrides& overrides) {
  ConfigNode node = ConfigNode::parse(R"({
      "name": "test", "title": "a device for tests", "part": "flash",
      "queue_depth": 32, "logical_block_bytes": 512, "max_transfer_bytes": 1048576,
      "command_latency_us": 20, "command_overhead_us": 2,
      "channels": 4, "dies_per_channel": 2, "planes": 2, "program_pages": 1,
      "page_bytes": 16384, "read_unit_bytes": 4096, "read_us": 40, "program_us": 400,
      "channel_mb_s": 800, "link_mb_s": 4000, "link_duplex": "full",
      "write_buffer_bytes": 1048576})",
                                      "test.json");
  for (const auto& [path, value] : overrides) node = node.with(path, value);
  return node;
}

/// A flash device with generous limits except for `overrides`.
inline DeviceSpec flash(const Overrides& overrides = {}) {
  return DeviceSpec::parse(flash_config(overrides));
}

/// Random parameters, for properties that hold for any device.
inline DeviceSpec random_spec(Random& random, const Overrides& overrides = {}) {
  const auto power = [&](std::uint64_t min, std::uint64_t max) {
    return std::to_string(min << random.below(max + 1));
  };
  const auto between = [&](double low, double high) {
    return std::to_string(low + (high - low) * random.uniform());
  };
  Overrides all{{"queue_depth", power(1, 6)},
                {"logical_block_bytes", power(512, 3)},
                {"max_transfer_bytes", power(65536, 4)},
                {"command_latency_us", between(0, 100)},
                {"command_overhead_us", between(0, 20)},
                {"channels", std::to_string(1 + random.below(5))},
                {"dies_per_channel", std::to_string(1 + random.below(4))},
                {"planes", power(1, 2)},
                {"program_pages", std::to_string(1 + random.below(3))},
                {"page_bytes", power(4096, 2)},
                {"read_unit_bytes", power(512, 3)},
                {"read_us", between(0, 100)},
                {"program_us", between(0, 1000)},
                {"channel_mb_s", between(50, 1500)},
                {"link_mb_s", between(50, 4000)},
                {"link_duplex", random.below(2) == 0 ? "full" : "half"},
                {"write_buffer_bytes", power(262144, 4)}};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return flash(all);
}

inline DeviceSpec preset(const std::string& name) {
  return DeviceSpec::load(source_folder() + "/configs/devices/" + name + ".json");
}

/// Checks that `measured` equals the `formula`'s value within a share of `tolerance`, and prints
/// both.
inline void expect_close(const std::string& what, double measured, double formula,
                         double tolerance = 0.01) {
  const double deviation = measured / formula - 1;
  std::printf("%-46s measured %12.3f  formula %12.3f  deviation %+.3f %%\n", what.c_str(), measured,
              formula, 100 * deviation);
  EXPECT_LE(std::abs(deviation), tolerance) << what;
}

}  // namespace kvreplay::test
