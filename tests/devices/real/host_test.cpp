#include "devices/real/host.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace kvreplay {
namespace {

TEST(ProcessorTime, IsTheSumOfEightFieldsAndTheLastIsStolen) {
  const TemporaryFolder folder;
  const std::string file = folder.file("stat");
  std::ofstream(file) << "cpu  10 20 30 400 50 6 7 80 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
  const ProcessorTime time = processor_time(file);
  EXPECT_EQ(time.passed, 603);
  EXPECT_EQ(time.stolen, 80);
  EXPECT_DOUBLE_EQ(stolen_share({.passed = 503, .stolen = 55}, time), 0.25);
  EXPECT_EQ(stolen_share(time, time), 0);
}

TEST(ProcessorTime, IsZeroWhereTheSystemDoesNotTell) {
  const TemporaryFolder folder;
  const std::string file = folder.file("stat");
  EXPECT_EQ(processor_time(file).passed, 0);
  std::ofstream(file) << "cpu 10 20 30\n";
  EXPECT_EQ(processor_time(file).passed, 0);
  EXPECT_EQ(processor_time(file).stolen, 0);
}

TEST(ProcessorTime, IsADisturbanceFromTwoPercentOn) {
  EXPECT_EQ(disturbance(0.019), "");
  EXPECT_THAT(disturbance(0.123), ::testing::HasSubstr("12.3 %"));
}

}  // namespace
}  // namespace kvreplay
