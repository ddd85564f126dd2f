// blktrace's binary output: it means the same as blkparse's text of it, in whichever files it is,
// and every bad record is named.

#include "devices/logs/blktrace.hpp"

#include <gmock/gmock.h>
#include <linux/blktrace_api.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "base/output_file.hpp"
#include "base/random.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint32_t kDevice = 8U << 20 | 16;  // 8,16

struct Record {
  blk_io_trace trace{};
  std::string payload;
};

Record record(std::uint64_t time, std::uint32_t cpu, std::uint32_t sequence, std::uint32_t action,
              std::uint64_t sector = 0, std::uint32_t bytes = 0, std::string payload = "") {
  Record made;
  made.trace.magic = BLK_IO_TRACE_MAGIC | BLK_IO_TRACE_VERSION;
  made.trace.time = time;
  made.trace.cpu = cpu;
  made.trace.sequence = sequence;
  made.trace.action = action;
  made.trace.sector = sector;
  made.trace.bytes = bytes;
  made.trace.device = kDevice;
  made.trace.pid = 4711;
  made.trace.pdu_len = static_cast<std::uint16_t>(payload.size());
  made.payload = std::move(payload);
  return made;
}

Record queued(std::uint64_t time, std::uint32_t cpu, std::uint32_t sequence, std::uint64_t sector,
              std::uint32_t bytes) {
  return record(time, cpu, sequence, BLK_TA_QUEUE | BLK_TC_ACT(BLK_TC_READ), sector, bytes);
}

/// The record as it is in a file, with each field byte-swapped where `swapped`.
std::string binary(const Record& one, bool swapped = false) {
  std::string bytes;
  const auto add = [&](auto field) {
    std::array<char, sizeof field> raw{};
    std::memcpy(raw.data(), &field, sizeof field);
    if (swapped) std::ranges::reverse(raw);
    bytes.append(raw.data(), raw.size());
  };
  const blk_io_trace& trace = one.trace;
  for (const std::uint32_t field : {trace.magic, trace.sequence}) add(field);
  for (const std::uint64_t field : {trace.time, trace.sector}) add(field);
  for (const std::uint32_t field :
       {trace.bytes, trace.action, trace.pid, trace.device, trace.cpu}) {
    add(field);
  }
  for (const std::uint16_t field : {trace.error, trace.pdu_len}) add(field);
  return bytes + one.payload;
}

std::string binary(const std::vector<Record>& records, bool swapped = false) {
  std::string bytes;
  for (const Record& one : records) bytes += binary(one, swapped);
  return bytes;
}

bool notifies(const Record& one) {
  return (one.trace.action & BLK_TC_ACT(BLK_TC_NOTIFY)) != 0;
}

/// The line that blkparse prints according to its manual and blkparse_fmt.c.
std::string line(const Record& one) {
  const blk_io_trace& trace = one.trace;
  const auto is = [&](std::uint32_t category) {
    return (trace.action & BLK_TC_ACT(category)) != 0;
  };
  std::string what;
  if (is(BLK_TC_FLUSH)) what += 'F';
  what += is(BLK_TC_DISCARD) ? 'D' : is(BLK_TC_WRITE) ? 'W' : trace.bytes > 0 ? 'R' : 'N';
  if (is(BLK_TC_FUA)) what += 'F';
  if (is(BLK_TC_AHEAD)) what += 'A';
  if (is(BLK_TC_SYNC)) what += 'S';
  if (is(BLK_TC_META)) what += 'M';
  const char letter = "-QMFGSRDCPUTIXBAad"[trace.action & 0xff];
  std::array<char, 200> head{};
  std::snprintf(head.data(), head.size(), "%3u,%-3u %2u %8u %5llu.%09llu %5u %2c %3s ",
                trace.device >> 20, trace.device & 0xfffff, trace.cpu, trace.sequence,
                static_cast<unsigned long long>(trace.time / 1'000'000'000),
                static_cast<unsigned long long>(trace.time % 1'000'000'000), trace.pid, letter,
                what.c_str());
  std::string text = head.data();
  if (trace.bytes >= 512) {
    text += std::to_string(trace.sector) + " + " + std::to_string(trace.bytes / 512) + " ";
  }
  return text + "[dd]\n";
}

/// What a few processors queue on one device, and what becomes of it: by processor, each in order.
/// No two processors have the same time, because blkparse may print such records in either order.
/// `cgroups`: some requests name their cgroup, which blkparse before 1.3 does not understand.
std::vector<std::vector<Record>> random_trace(std::uint64_t seed, bool cgroups) {
  Random random(seed);
  std::vector<std::vector<Record>> by_cpu(1 + random.below(4));
  std::vector<std::uint32_t> sequences(by_cpu.size());
  const std::string name = std::string("dd") + std::string(14, '\0');
  for (std::uint32_t cpu = 0; cpu < by_cpu.size(); ++cpu) {
    by_cpu[cpu].push_back(record(0, cpu, 0, BLK_TN_PROCESS, 0, 0, name));
  }
  std::uint64_t time = 1'000'000'000 * random.below(3'000'000);  // up to a month after the start
  std::size_t cpu = 0;
  for (std::size_t i = 0; i < 300; ++i) {
    if (random.below(3) > 0) {
      time += 1 + random.below(50'000'000);
      cpu = random.below(by_cpu.size());
    }
    const bool write = random.below(2) == 0;
    const std::uint32_t direction = BLK_TC_ACT(write ? BLK_TC_WRITE : BLK_TC_READ);
    const std::uint64_t sector = random.below(1 << 30);
    auto bytes = static_cast<std::uint32_t>(512 * (1 + random.below(2048)));
    std::uint32_t action = BLK_TA_QUEUE | direction;
    std::string payload;
    switch (random.below(12)) {
      case 0:
        action |= BLK_TC_ACT(BLK_TC_SYNC) | BLK_TC_ACT(BLK_TC_META);
        break;
      case 1:
        action |= BLK_TC_ACT(BLK_TC_AHEAD);
        break;
      case 2:
        action |= BLK_TC_ACT(BLK_TC_FLUSH) | BLK_TC_ACT(BLK_TC_FUA);
        if (random.below(2) == 0) bytes = 0;
        break;
      case 3:
        action |= BLK_TC_ACT(BLK_TC_DISCARD);
        break;
      case 4:
        bytes = 0;
        break;
      case 5:
        if (!cgroups) break;
        action |= __BLK_TA_CGROUP;
        payload = std::string(8, 'c');
        break;
      case 6:
        action = BLK_TA_GETRQ | direction;
        break;
      case 7:
        action = BLK_TA_ISSUE | direction;
        break;
      case 8:
        action = BLK_TA_COMPLETE | direction;
        break;
      default:
        break;
    }
    by_cpu[cpu].push_back(record(time, static_cast<std::uint32_t>(cpu), ++sequences[cpu], action,
                                 sector, bytes, payload));
  }
  by_cpu[cpu].push_back(queued(time, static_cast<std::uint32_t>(cpu), ++sequences[cpu], 8, 512));
  return by_cpu;
}

/// All records, by time.
std::vector<Record> merged(const std::vector<std::vector<Record>>& by_cpu) {
  std::vector<Record> all;
  for (const auto& records : by_cpu) all.insert(all.end(), records.begin(), records.end());
  std::ranges::stable_sort(all, [](const Record& a, const Record& b) {
    return std::tie(a.trace.time, a.trace.cpu) < std::tie(b.trace.time, b.trace.cpu);
  });
  return all;
}

/// The text of blkparse: times begin at the first event, and names give no lines.
std::string text_of(const std::vector<std::vector<Record>>& by_cpu) {
  std::string text;
  std::uint64_t genesis = 0;
  for (Record one : merged(by_cpu)) {
    if (notifies(one)) continue;
    if (text.empty()) genesis = one.trace.time;
    one.trace.time -= genesis;
    text += line(one);
  }
  return text;
}

/// Pieces of each processor's records in turn, as blktrace writes them to its standard output.
std::string stream_of(const std::vector<std::vector<Record>>& by_cpu, bool swapped) {
  constexpr std::size_t kPiece = 7;
  std::string bytes;
  for (std::size_t at = 0, more = 1; more > 0; at += kPiece) {
    more = 0;
    for (const auto& records : by_cpu) {
      for (std::size_t i = at; i < std::min(at + kPiece, records.size()); ++i, ++more) {
        bytes += binary(records[i], swapped);
      }
    }
  }
  return bytes;
}

class BlktraceTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string write(const std::string& name, const std::string& bytes) const {
    write_text_file(folder_.file(name), bytes);
    return folder_.file(name);
  }
  void write_files(const std::vector<std::vector<Record>>& by_cpu, bool swapped = false) const {
    for (std::size_t cpu = 0; cpu < by_cpu.size(); ++cpu) {
      (void)write("sda.blktrace." + std::to_string(cpu), binary(by_cpu[cpu], swapped));
    }
  }
  /// Requests of a stream.
  [[nodiscard]] std::string error_of(const std::string& bytes) const {
    const std::string file = write("stream", bytes);
    return user_error_of([&] { (void)read_blktrace(file); });
  }

  TemporaryFolder folder_;
};

std::string schedule_of(const std::string& file, std::size_t& left_out) {
  EXPECT_TRUE(is_io_log(file)) << file;
  const IoLog log = read_io_log(file);
  left_out = log.left_out;
  return to_schedule(log, {512, 65536, 32}, "test").text();
}

TEST_F(BlktraceTest, SaysWhatTheTextOfItSays) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const auto by_cpu = random_trace(seed, true);
    const bool swapped = seed % 2 == 1;
    std::size_t left_out = 0;
    const std::string expected = schedule_of(write("work.txt", text_of(by_cpu)), left_out);
    EXPECT_GT(left_out, 0u);

    write_files(by_cpu, swapped);
    (void)write("sda.blktrace.4x", "of another kind");
    (void)write("sdab.blktrace.0", "of another device");
    std::vector<std::string> sources{"sda", "sda.blktrace.0"};
    sources.push_back("sda.blktrace." + std::to_string(by_cpu.size() - 1));
    (void)write("stream", stream_of(by_cpu, swapped));
    (void)write("merged", binary(merged(by_cpu), swapped));
    for (const std::string& source : sources) {
      EXPECT_EQ(read_io_log(folder_.file(source)).files.size(), by_cpu.size());
    }
    sources.insert(sources.end(), {"stream", "merged"});
    for (const std::string& source : sources) {
      SCOPED_TRACE(source);
      std::size_t left_out_here = 0;
      EXPECT_EQ(schedule_of(folder_.file(source), left_out_here), expected);
      EXPECT_EQ(left_out_here, left_out);
    }
    for (std::size_t cpu = 0; cpu < by_cpu.size(); ++cpu) {
      std::filesystem::remove(folder_.file("sda.blktrace." + std::to_string(cpu)));
    }
  }
}

TEST_F(BlktraceTest, SaysWhatBlkparseSaysOfIt) {
  if (std::system("command -v blkparse >/dev/null") != 0) {
    GTEST_SKIP() << "no blkparse (Debian: blktrace)";
  }
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    const TemporaryFolder folder;
    const auto by_cpu = random_trace(seed, false);
    for (std::size_t cpu = 0; cpu < by_cpu.size(); ++cpu) {
      write_text_file(folder.file("sda.blktrace." + std::to_string(cpu)),
                      binary(by_cpu[cpu], seed % 2 == 1));
    }
    write_text_file(folder.file("stream"), stream_of(by_cpu, seed % 2 == 1));
    ASSERT_EQ(std::system(("cd '" + folder.path().string() +
                           "' && blkparse -i sda -o files.txt -d merged >log 2>&1 && "
                           "blkparse -i - -o stream.txt <stream >>log 2>&1")
                              .c_str()),
              0);
    std::size_t left_out = 0;
    const std::string expected = schedule_of(folder.file("sda"), left_out);
    for (const char* source : {"files.txt", "merged", "stream.txt", "stream"}) {
      SCOPED_TRACE(source);
      std::size_t left_out_here = 0;
      EXPECT_EQ(schedule_of(folder.file(source), left_out_here), expected);
      EXPECT_EQ(left_out_here, left_out);
    }
  }
}

TEST_F(BlktraceTest, TiesGoByProcessorAndSequence) {
  // Equal times: within a processor in the order of queueing, then the next processor.
  const std::string late = binary({queued(5, 1, 7, 30, 512), queued(5, 1, 8, 40, 512)});
  const std::string early = binary({queued(5, 0, 1, 10, 512), queued(5, 0, 2, 20, 512)});
  for (const std::string& bytes : {late + early, early + late}) {
    const IoLog log = read_blktrace(write("stream", bytes));
    ASSERT_EQ(log.requests.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(log.requests[i].time_ns, 0);
      EXPECT_EQ(log.requests[i].extent, (Extent{(i + 1) * 10 * 512, 512}));
      EXPECT_FALSE(log.requests[i].write);
    }
  }
}

TEST_F(BlktraceTest, AProcessorThatDidNothingHasAnEmptyFile) {
  (void)write("sda.blktrace.0", "");
  (void)write("sda.blktrace.1", binary(queued(5, 1, 1, 8, 4096)));
  const IoLog log = read_io_log(folder_.file("sda"));
  ASSERT_EQ(log.requests.size(), 1u);
  EXPECT_EQ(log.requests[0].extent, (Extent{4096, 4096}));
}

TEST_F(BlktraceTest, EveryBadRecordIsNamed) {
  const Record good = queued(1000, 0, 1, 8, 4096);
  const std::string first = binary(good);
  const auto expect = [&](const std::string& bytes, std::size_t byte, const std::string& says) {
    SCOPED_TRACE(says);
    EXPECT_THAT(error_of(bytes),
                AllOf(HasSubstr("stream: byte " + std::to_string(byte) + ": "), HasSubstr(says)));
  };
  const auto changed = [&](auto change) {
    Record other = good;
    change(other);
    return first + binary(other);
  };
  expect("", 0, "no read or write until here");
  expect(first.substr(0, 7), 0, "ends after 7 of the 48 bytes of a record");
  expect(first + first.substr(0, 47), 48, "ends after 47 of the 48 bytes of a record");
  expect(changed([](Record& r) { r.trace.pdu_len = 65535; }) + "abc", 48,
         "ends after 3 of the 65535 bytes of a record's payload");
  expect(changed([](Record& r) { r.trace.pdu_len = 40; }) + first + first, 136,
         "where that of byte 48 ends, with 40 bytes of payload");
  expect("no trace at all, but long enough to be a record of one.", 0, "no record begins here (0x");
  expect(first + std::string(48, '\0'), 48, "no record begins here (0x00000000)");
  expect(first + binary(good, true), 48, "no record begins here (0x07746165)");
  expect(changed([](Record& r) { r.trace.magic += 1; }), 48, "a record of version 8");
  expect(changed([](Record& r) { r.trace.time = 999; }), 48, "before that of processor 0's record");
  expect(changed([](Record& r) { r.trace.sector = ~std::uint64_t{0}; }), 48, "sector 1844674407");
  expect(changed([](Record& r) { r.trace.device += 1; }), 48, "second target, 8,17, after 8,16");
  expect(changed([](Record& r) { r.trace.time = ~std::uint64_t{0}; }), 96, "requests span 1844674");
  expect(binary(record(5, 0, 1, BLK_TA_QUEUE | BLK_TC_ACT(BLK_TC_DISCARD), 8, 4096)), 48,
         "no read or write until here");

  // Times that need not ascend: between processors, and of notifications.
  EXPECT_EQ(
      read_blktrace(write("stream", first + binary({record(1, 0, 1, BLK_TN_MESSAGE, 0, 0, "m"),
                                                    queued(999, 1, 1, 16, 512)})))
          .requests.size(),
      2u);

  // The error of one processor's file names that file.
  (void)write("sda.blktrace.0", first);
  (void)write("sda.blktrace.3", first + "x");
  EXPECT_THAT(user_error_of([&] { (void)read_io_log(folder_.file("sda.blktrace.0")); }),
              HasSubstr("sda.blktrace.3: byte 48: "));

  // All files are empty.
  const std::string empty = write("sdb.blktrace.0", "");
  EXPECT_TRUE(is_io_log(empty));
  EXPECT_THAT(user_error_of([&] { (void)read_io_log(empty); }),
              HasSubstr("sdb.blktrace.0: byte 0: no read or write"));

  EXPECT_FALSE(is_blktrace(folder_.file("none")));
  EXPECT_FALSE(is_blktrace(folder_.file("sdc.blktrace.0")));
  EXPECT_FALSE(is_blktrace(write("short", "\x74\x61")));
  EXPECT_THAT(user_error_of([&] { (void)read_blktrace(folder_.file("none")); }),
              HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace kvreplay
