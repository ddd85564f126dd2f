#include "sim/replay/wear.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/build_info.hpp"
#include "base/config_folder.hpp"
#include "sim/replay/phase_columns.hpp"
#include "tests/devices/flash/flash_spec.hpp"

namespace kvreplay {
namespace {

/// A prompt programs 4 GB, and a token 1 MB, of a device that takes 100 TB.
CellResult worn_cell() {
  CellResult cell;
  cell.system = "clusterkv";
  cell.device = "card";
  cell.batch = 2;
  cell.endurance = {
      .capacity_bytes = 100'000'000'000, .rated_bytes = 100e12, .erase_block_bytes = 4'000'000};
  cell.conversation = {.tokens = 1000, .per_day = 10};
  cell.timing.steps.resize(4);
  cell.timing.batch = 2;
  cell.timing.flash_write_bytes = 6'000'000;
  cell.timing.unfolded_bytes = 2'000'000;
  cell.timing.prefill.ttft_ns = 1;
  cell.timing.prefill.write_bytes = 4'000'000'000;
  cell.timing.prefill.flash_write_bytes = 8'000'000'000;
  return cell;
}

TEST(WearOf, IsOfOneConversation) {
  const Wear wear = wear_of(worn_cell());
  EXPECT_DOUBLE_EQ(wear.prompt_bytes, 4e9);
  EXPECT_DOUBLE_EQ(wear.token_bytes, 1e6);
  EXPECT_DOUBLE_EQ(wear.prompt_erases, 1000);
  EXPECT_DOUBLE_EQ(wear.token_erases, 0.25);
  EXPECT_DOUBLE_EQ(wear.prompt_amplification, 2);
  // 5 GB of 100 TB each.
  EXPECT_DOUBLE_EQ(wear.share_per_1000, 0.05);
  EXPECT_DOUBLE_EQ(wear.years, 20'000 / 10.0 / 365.25);
}

TEST(WearOf, IsUnknownWithoutARatingOrAPrefill) {
  CellResult cell = worn_cell();
  cell.endurance = {};
  EXPECT_TRUE(std::isnan(wear_of(cell).years));
  EXPECT_TRUE(std::isnan(wear_of(cell).prompt_erases));
  EXPECT_DOUBLE_EQ(wear_of(cell).prompt_bytes, 4e9);
  cell = worn_cell();
  cell.timing.prefill = {};
  EXPECT_TRUE(std::isnan(wear_of(cell).years));
  EXPECT_DOUBLE_EQ(wear_of(cell).token_bytes, 1e6);
}

TEST(WearOf, WhatWritesNothingWearsNothingOut) {
  CellResult cell = worn_cell();
  cell.timing.flash_write_bytes = cell.timing.unfolded_bytes = 0;
  cell.timing.prefill.write_bytes = cell.timing.prefill.flash_write_bytes = 0;
  EXPECT_DOUBLE_EQ(wear_of(cell).share_per_1000, 0);
  EXPECT_TRUE(std::isnan(wear_of(cell).years));
  EXPECT_TRUE(wear_lines(std::vector{cell}).empty());
}

TEST(WearOf, AUserIsWarnedOfLessThanTwoYears) {
  CellResult cell = worn_cell();
  EXPECT_TRUE(wear_lines(std::vector{cell}).empty());  // 5.5 years
  cell.conversation.per_day = 50;
  CellResult other = cell;
  other.system = "quest";
  const std::vector<std::string> lines = wear_lines(std::vector{cell, other});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("wear (clusterkv, quest): card would be worn out in under 2 years"),
            std::string::npos)
      << lines[0];
}

TEST(Endurance, OfEveryPresetIsRated) {
  for (const char* name : {"emmc51", "nvme_jetson", "nvme_pc4", "nvme_x1", "sd_a2", "ufs21",
                           "ufs31", "ufs40", "ufs40_hot"}) {
    const Endurance endurance = endurance_of(test::preset(name));
    EXPECT_GT(endurance.capacity_bytes, 16'000'000'000) << name;
    // Between a hundred and ten thousand times its capacity.
    const double cycles = endurance.rated_bytes / static_cast<double>(endurance.capacity_bytes);
    EXPECT_GE(cycles, 100) << name;
    EXPECT_LE(cycles, 10'000) << name;
    EXPECT_GT(endurance.erase_block_bytes, 0) << name;
  }
}

}  // namespace
}  // namespace kvreplay
