// The energy of a flash device's work, by hand and by property: docs/device-model.md.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/devices/flash/flash_spec.hpp"

namespace kvreplay {
namespace {

using test::flash;
using test::Overrides;
using test::random_spec;

const Overrides kFigures{
    {"sense_uj", "4"}, {"program_uj", "6"}, {"transfer_pj_bit", "25"}, {"idle_mw", "100"}};

Overrides with_figures(const Overrides& overrides) {
  Overrides all = kFigures;
  all.insert(all.end(), overrides.begin(), overrides.end());
  return all;
}

/// Energy of the commands, submitted together, on a device that is on for `on_ns`.
double energy_nj(const DeviceSpec& spec, const std::vector<IoCommand>& commands, SimTime on_ns) {
  struct Nothing final : EventHandler {
    void on_event(std::uint64_t /*argument*/) override {}
  } nothing;
  Simulation simulation;
  const std::unique_ptr<Device> device = spec.make(simulation);
  for (const IoCommand& command : commands) device->submit(command, nothing, 0);
  simulation.run();
  return device->energy_nj(on_ns);
}

double by_hand(double pages_sensed, double pages_programmed, double bytes, double on_ns) {
  return 4000 * pages_sensed + 6000 * pages_programmed + 0.025 * 8 * bytes + 0.1 * on_ns;
}

TEST(FlashEnergy, OfReadsByHand) {
  const DeviceSpec device = flash(kFigures);
  EXPECT_DOUBLE_EQ(energy_nj(device, {}, 1000), by_hand(0, 0, 0, 1000));
  EXPECT_DOUBLE_EQ(energy_nj(device, {{0, 4096, false}}, 0), by_hand(1, 0, 4096, 0));
  // A read unit of 4096 bytes leaves the page, even if fewer bytes are requested.
  EXPECT_DOUBLE_EQ(energy_nj(device, {{512, 512, false}}, 50), by_hand(1, 0, 4096, 50));
  // From the middle of a page of 16 KiB to the middle of the fourth.
  EXPECT_DOUBLE_EQ(energy_nj(device, {{8192, 49152, false}}, 0), by_hand(4, 0, 49152, 0));
  // The die still holds the page of the read before.
  EXPECT_DOUBLE_EQ(energy_nj(device, {{0, 4096, false}, {4096, 4096, false}}, 0),
                   by_hand(1, 0, 8192, 0));
  EXPECT_DOUBLE_EQ(energy_nj(device, {{0, 4096, false}, {1 << 20, 4096, false}}, 0),
                   by_hand(2, 0, 8192, 0));
}

TEST(FlashEnergy, OfWritesByHand) {
  // A stripe is a page of each of two planes; less than one stays in the buffer.
  const DeviceSpec device = flash(kFigures);
  EXPECT_DOUBLE_EQ(energy_nj(device, {{0, 32768, true}}, 0), by_hand(0, 2, 32768, 0));
  EXPECT_DOUBLE_EQ(energy_nj(device, {{0, 16384, true}}, 0), by_hand(0, 0, 16384, 0));
}

TEST(FlashEnergy, OfTheMapByHand) {
  const DeviceSpec device = flash(with_figures(
      {{"map_cache_entries", "1024"}, {"map_line_entries", "1024"}, {"map_unit_bytes", "4096"}}));
  // The second read finds the line, which has 4 bytes for each of 1024 units.
  EXPECT_DOUBLE_EQ(energy_nj(device, {{0, 4096, false}}, 0), by_hand(2, 0, 4096 + 4096, 0));
}

TEST(FlashEnergy, IsNotKnownWithoutAllFigures) {
  EXPECT_TRUE(std::isnan(energy_nj(flash(), {{0, 4096, false}}, 1000)));
  for (const auto& [missing, value] : kFigures) {
    EXPECT_TRUE(std::isnan(energy_nj(flash(with_figures({{missing, "0"}})), {}, 1000))) << missing;
  }
}

TEST(FlashEnergy, MoreBytesAndMoreTimeCostMore) {
  Random random(7);
  for (int round = 0; round < 50; ++round) {
    const DeviceSpec device = random_spec(random, kFigures);
    Simulation simulation;
    const DeviceLimits limits = device.make(simulation)->limits();
    std::vector<IoCommand> commands;
    double before = energy_nj(device, commands, 500);
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t blocks = 1 + random.below(8);
      commands.push_back({random.below(1000) * limits.logical_block_bytes,
                          static_cast<std::uint32_t>(blocks * limits.logical_block_bytes),
                          random.below(4) == 0});
      const double after = energy_nj(device, commands, 500);
      EXPECT_GT(after, before);
      before = after;
    }
    EXPECT_NEAR(energy_nj(device, commands, 1500) - before, 0.1 * 1000, 1e-6 * before);
  }
}

TEST(FlashEnergy, EveryPresetHasFigures) {
  for (const char* name : {"emmc51", "nvme_jetson", "nvme_pc4", "nvme_x1", "sd_a2", "ufs21",
                           "ufs31", "ufs40", "ufs40_hot"}) {
    EXPECT_GT(energy_nj(test::preset(name), {{0, 4096, false}}, 1000), 0) << name;
  }
}

}  // namespace
}  // namespace kvreplay
