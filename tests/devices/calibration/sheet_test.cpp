#include "devices/calibration/sheet.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <string>

#include "devices/device_config.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::HasSubstr;

SheetDevice solved(const std::string& base, const std::string& spec,
                   const std::vector<std::pair<std::string, std::string>>& sets = {}) {
  ConfigNode node = ConfigFolder::standard().find("devices", base, {});
  for (const auto& [name, value] : sets) node = node.with(name, value);
  return solve_sheet(node, DataSheet::parse(spec, {"--from-spec", ""}));
}

/// Of the data sheets of docs/device-model.md.
struct Case {
  const char* base;
  const char* spec;
  std::vector<std::pair<std::string, std::string>> sets = {};
};

TEST(Sheet, TheModelHasItsNumbers) {
  const std::vector<Case> cases{
      {"ufs40", "read=4300MB/s,write=4000MB/s,random_read=500kIOPS,random_write=500kIOPS"},
      {"ufs40", "read=4300MB/s"},
      {"sd_a2", "read=420MB/s,write=380MB/s", {{"command_queue", "false"}}},
      {"nvme_pc4",
       "read=7000MB/s,write=5100MB/s,random_read=1000kIOPS,random_write=1000kIOPS,"
       "random_depth=512"},
      {"sd_a2", "read=1000MB/s,write=900MB/s", {{"command_queue", "false"}}},
      {"nvme_pc4",
       "read=7000MB/s,write=5000MB/s,random_read=1000kIOPS,random_write=1000kIOPS,latency=45.5us,"
       "write_latency=16.7us,random_depth=512"},
      {"emmc51", "read=330MB/s,write=240MB/s,random_read=20kIOPS,random_write=15kIOPS"},
      {"ufs40", "read=4200MB/s,write=2800MB/s,sustained_write=900MB/s,latency=60us"}};
  for (const Case& one : cases) {
    const SheetDevice device = solved(one.base, one.spec, one.sets);
    EXPECT_FALSE(device.points.empty());
    for (const SheetPoint& point : device.points) {
      EXPECT_LT(std::abs(point.error()), 0.03) << one.spec << ": " << point.key;
    }
    // What is not of the sheet stays.
    EXPECT_EQ(device.changes.count("page_bytes"), 0U);
    EXPECT_EQ(device.changes.count("planes"), 0U);
    for (const auto& [name, change] : device.changes) EXPECT_NE(change.value, change.base) << name;
  }
}

TEST(Sheet, WhatTheBaseHasAlreadyChangesLittle) {
  // A device's own latency, as the model has it.
  const ConfigNode base = ConfigFolder::standard().find("devices", "ufs31", {});
  const Measurement one = measure(DeviceSpec::parse(base), {.depth = 1, .range_bytes = 256 << 20});
  const SheetDevice device = solve_sheet(base, {.latency_us = one.mean_us});
  EXPECT_NEAR(device.points.front().error(), 0, 0.003);
  for (const auto& [name, change] : device.changes) {
    EXPECT_NEAR(change.value / change.base, 1, 0.01) << name;
  }
}

TEST(Sheet, TheFileHasABaseAndWhatDiffers) {
  const SheetDevice device = solved("ufs40", "read=4300MB/s,random_read=300k");
  const std::string json = sheet_json(device, "ufs40", "A test", "a sheet");
  const TemporaryFolder folder;
  std::ofstream(folder.file("mine.json")) << json;
  const DeviceSpec spec = DeviceSpec::load(folder.file("mine.json"));
  EXPECT_EQ(spec.name, "mine");
  EXPECT_EQ(spec.title, "A test");
  EXPECT_EQ(spec.source, "a sheet");
  const auto& arguments = spec.device.arguments().all();
  for (const auto& [name, change] : device.changes) {
    EXPECT_THAT(arguments.at(name).source, HasSubstr("solved from the data sheet"));
  }
  EXPECT_THAT(arguments.at("command_overhead_us").source, HasSubstr("random_read=300000IOPS"));
  EXPECT_THAT(arguments.at("page_bytes").source, HasSubstr("ConZone"));
  const std::string text = sheet_text(device);
  EXPECT_THAT(text, AllOf(HasSubstr("random_read"), HasSubstr("command_overhead_us")));
}

TEST(Sheet, BadSheets) {
  const auto error = [](const std::string& spec) {
    return user_error_of([&] { (void)solved("ufs40", spec); });
  };
  EXPECT_THAT(error("raed=4200MB/s"), AllOf(HasSubstr("--from-spec"), HasSubstr("'read'")));
  EXPECT_THAT(error("read=4200"), AllOf(HasSubstr("'4200'"), HasSubstr("4200MB/s")));
  EXPECT_THAT(error("read=-1MB/s"), HasSubstr("'-1MB/s'"));
  EXPECT_THAT(error("read=nanMB/s"), HasSubstr("nanMB/s"));
  EXPECT_THAT(error("read"), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(error("read=1GB/s,read=2GB/s"), HasSubstr("twice"));
  EXPECT_THAT(error("size=4K"), HasSubstr("found no number of the device"));
  EXPECT_THAT(error("depth=0,read=1GB/s"), HasSubstr("1 to 4096"));
  EXPECT_THAT(error("random_read=500kIOPS,latency=100us,random_depth=32"),
              AllOf(HasSubstr("64.0 us"), HasSubstr("random_depth=")));
}

}  // namespace
}  // namespace kvreplay
