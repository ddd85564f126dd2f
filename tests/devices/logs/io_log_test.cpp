// Logs of fio and blkparse: what they mean, and with which messages they are refused.

#include "devices/logs/io_log.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <numeric>

#include "base/build_info.hpp"
#include "base/output_file.hpp"
#include "devices/schedule/time_schedule.hpp"
#include "tests/devices/schedule/schedules.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class IoLogTest : public ::testing::Test {
 protected:
  IoLog read(const std::string& text) {
    write_text_file(file_, text);
    EXPECT_TRUE(is_io_log(file_));
    return read_io_log(file_);
  }
  std::string error_of(const std::string& text) {
    write_text_file(file_, text);
    return user_error_of([&] { (void)read_io_log(file_); });
  }

  TemporaryFolder folder_;
  const std::string file_ = folder_.file("work.log");
};

void expect_request(const LoggedRequest& request, std::int64_t time_ns, const Extent& extent,
                    bool write) {
  EXPECT_EQ(request.time_ns, time_ns);
  EXPECT_EQ(request.extent, extent);
  EXPECT_EQ(request.write, write);
}

TEST_F(IoLogTest, FioVersion3HasTimes) {
  const IoLog log = read(
      "fio version 3 iolog\n"
      "18 /f add\n656 /f open\n659 /f read 4096 512\n733 /f write 0 8192\n740 /f trim 0 4096\n"
      "6432 /f read 12288 4096\n7000 /f close\n");
  EXPECT_EQ(log.format, "fio iolog 3");
  EXPECT_EQ(log.left_out, 1u);
  ASSERT_EQ(log.requests.size(), 3u);
  expect_request(log.requests[0], 0, {4096, 512}, false);
  expect_request(log.requests[1], 74'000, {0, 8192}, true);
  expect_request(log.requests[2], 5'773'000, {12288, 4096}, false);
}

TEST_F(IoLogTest, FioVersion2HasWaits) {
  const IoLog log = read(
      "fio version 2 iolog\n/f add\n/f open\n/f read 0 512\n/f read 512 512\n/f wait 250\n"
      "/f write 0 512\n/f sync 0 0\n/f close\n");
  EXPECT_EQ(log.format, "fio iolog 2");
  ASSERT_EQ(log.requests.size(), 3u);
  expect_request(log.requests[1], 0, {512, 512}, false);
  expect_request(log.requests[2], 250'000, {0, 512}, true);
}

TEST_F(IoLogTest, BlkparseHasQueuedRequests) {
  // Events as blkparse(1) shows them: queued, its later life, a flush, a discard, a message, and
  // the summary.
  const IoLog log = read(
      "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n"
      "  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]\n"
      "  8,0    3        3     0.000010000   697  D   W 223490 + 8 [kjournald]\n"
      "  8,0    3        4     0.000500000   697  C   W 223490 + 8 [0]\n"
      "  8,0    1        5     0.000600000   700  m   N cfq700 alloced\n"
      "  8,0    1        6     1.009507758   700  Q  RA 0 + 256 [dd]\n"
      "  8,0    1        7     1.100000000   700  Q FWS [sync]\n"
      "  8,0    1        8     1.200000000   700  Q   D 4096 + 8 [fstrim]\n"
      "\nCPU0 (8,0):\n Reads Queued:           1,      128KiB\n\nThroughput (R/W): 1KiB/s\n");
  EXPECT_EQ(log.format, "blkparse");
  ASSERT_EQ(log.requests.size(), 2u);
  expect_request(log.requests[0], 0, {223490ull * 512, 4096}, true);
  expect_request(log.requests[1], 1'009'507'758, {0, 256 * 512}, false);
  EXPECT_EQ(log.left_out, 2u);
}

TEST_F(IoLogTest, EveryBadLineIsNamed) {
  const auto expect = [&](const std::string& text, int line, const std::string& says) {
    SCOPED_TRACE(text);
    EXPECT_THAT(error_of(text),
                AllOf(HasSubstr("work.log: line " + std::to_string(line) + ": "), HasSubstr(says)));
  };
  const std::string v3 = "fio version 3 iolog\n";
  const std::string v2 = "fio version 2 iolog\n";
  const std::string blk = "8,0 3 1 0.000000000 697 Q R 0 + 8 [a]\n";
  expect("", 1, "the file ends");
  expect("fio version 1 iolog\n", 1, "fio version 3 iolog");
  expect("something\n", 1, "as blkparse prints");
  expect(v3, 2, "no read or write");
  expect(v3 + "0 /f add\n", 3, "no read or write");
  expect(v3 + "0 /f read 0\n", 2, "MICROSECONDS FILE ACTION");
  expect(v3 + "0 /f read 0 0\n", 2, "OFFSET LENGTH");
  expect(v3 + "0 /f read x 512\n", 2, "OFFSET LENGTH");
  expect(v3 + "0 /f read -1 512\n", 2, "OFFSET LENGTH");
  expect(v3 + "0 /f read 0 512 7\n", 2, "OFFSET LENGTH");
  expect(v3 + "0 /f write 9223372036854775807 512\n", 2, "OFFSET LENGTH");
  expect(v3 + "0 /f wait 100\n", 2, "actions add");
  expect(v3 + "0 /f\n", 2, "actions add");
  expect(v3 + "\n", 2, "MICROSECONDS");
  expect(v3 + "/f read 0 512\n", 2, "MICROSECONDS");
  expect(v3 + "-5 /f read 0 512\n", 2, "MICROSECONDS");
  expect(v3 + "9 /f read 0 512\n5 /f read 0 512\n", 3, "before that of the request above");
  expect(v3 + "9 /f read 0 512\n10 /g read 0 512\n", 3, "a second target, /g, after /f");
  expect(v2 + "/f wait\n", 2, "wait");
  expect(v2 + "/f erase 0 512\n", 2, "actions add");
  expect(blk + "8,0 3 1 0.5 697 Q R 0 + 8 [a]\n", 2, "SECONDS.NANOSECONDS");
  expect(blk + "8,0 3 1 x.000000000 697 Q R 0 + 8 [a]\n", 2, "SECONDS.NANOSECONDS");
  expect(blk + "8,0 3 one 0.000000001 697 Q R 0 + 8 [a]\n", 2, "blkparse prints");
  expect(blk + "8,0 3 1 0.000000001 697 Q R 0 + 0 [a]\n", 2, "blkparse prints");
  expect(blk + "8,0 3 1 0.000000001 697 Q R none + 8 [a]\n", 2, "blkparse prints");
  expect(blk + "8,16 3 1 0.000000001 697 Q R 0 + 8 [a]\n", 2, "second target, 8,16, after 8,0");
  expect(blk + "garbage\n", 2, "blkparse prints");
  expect("8,0 3 1 0.000000000 697 C R 0 + 8 [0]\n", 2, "events Q");
  EXPECT_THAT(user_error_of([&] { (void)read_io_log(folder_.file("none")); }),
              HasSubstr("cannot be read"));
  EXPECT_FALSE(is_io_log(folder_.file("none")));
  write_text_file(file_, "{\"trace\": 1}\n");
  EXPECT_FALSE(is_io_log(file_));
}

TEST_F(IoLogTest, AScheduleKeepsThePauses) {
  const IoLog log = read(
      "fio version 3 iolog\n0 /f read 0 512\n0 /f read 4096 10000\n1500 /f write 8192 4096\n"
      "2500000 /f read 0 4096\n");
  const Schedule schedule = to_schedule(log, {4096, 8192, 32}, "test");
  using Kind = Schedule::Kind;
  const std::vector<Schedule::Operation> expected{{Kind::kStep, 0},
                                                  {Kind::kSubmit, 0},
                                                  {Kind::kCompute, 1'500'000},
                                                  {Kind::kSubmit, 1},
                                                  {Kind::kCompute, 998'500'000},
                                                  {Kind::kStep, 0},
                                                  {Kind::kCompute, 1'000'000'000},
                                                  {Kind::kStep, 0},
                                                  {Kind::kCompute, 500'000'000},
                                                  {Kind::kSubmit, 2},
                                                  {Kind::kWait, 0},
                                                  {Kind::kWait, 1},
                                                  {Kind::kWait, 2}};
  EXPECT_TRUE(std::ranges::equal(schedule.operations(), expected));
  ASSERT_EQ(schedule.batch(0).size(), 3u);  // 4096; 8192 + 4096 of bytes 4096 to 14096
  EXPECT_EQ(schedule.batch(0)[0].bytes, 4096u);
  EXPECT_EQ(schedule.batch(0)[2].offset, 12288u);
  EXPECT_TRUE(schedule.batch(1)[0].write);
  EXPECT_EQ(schedule.space_bytes(), 16384u);
}

TEST_F(IoLogTest, AScheduleWrittenForFioComesBack) {
  const DeviceSpec device = DeviceSpec::load(source_folder() + "/configs/devices/ufs40.json");
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Schedule schedule =
        test::random_schedule({.steps = 6, .max_compute_ns = 3'000'000}, seed);
    const ScheduleMeasurement times = time_schedule(schedule, device);
    const IoLog log = read(fio_log(schedule, times, "/dev/x"));
    ASSERT_EQ(log.requests.size(), schedule.commands().size());
    const std::int64_t first_us = times.requests.front().requested_ns / 1000;
    for (std::size_t i = 0; i < log.requests.size(); ++i) {
      const IoCommand& command = schedule.commands()[i];
      expect_request(log.requests[i], (times.requests[i].requested_ns / 1000 - first_us) * 1000,
                     {command.offset, command.bytes}, command.write);
    }
    const Schedule back = to_schedule(log, schedule.limits(), "back");
    EXPECT_EQ(back.commands().size(), schedule.commands().size());
    // The last command is requested at the same time, within the microsecond of the format.
    const ScheduleMeasurement again = time_schedule(back, device);
    EXPECT_NEAR(
        static_cast<double>(again.requests.back().requested_ns - again.requests[0].requested_ns),
        static_cast<double>(times.requests.back().requested_ns - times.requests[0].requested_ns),
        1000);
  }
  const Schedule schedule = test::random_schedule({}, 1);
  const ScheduleMeasurement times = time_schedule(schedule, device);
  for (const char* target : {"relative", "/with space", ""}) {
    EXPECT_THAT(user_error_of([&] { (void)fio_log(schedule, times, target); }),
                HasSubstr("absolute path without spaces"));
  }
}

}  // namespace
}  // namespace kvreplay
