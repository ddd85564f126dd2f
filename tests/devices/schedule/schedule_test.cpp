// The schedule as a value and as a file.

#include "devices/schedule/schedule.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/output_file.hpp"
#include "tests/devices/schedule/schedules.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool same(const IoCommand& a, const IoCommand& b) {
  return a.offset == b.offset && a.bytes == b.bytes && a.write == b.write;
}

void expect_same(const Schedule& a, const Schedule& b) {
  EXPECT_EQ(a.made_from(), b.made_from());
  EXPECT_EQ(a.limits().logical_block_bytes, b.limits().logical_block_bytes);
  EXPECT_EQ(a.limits().max_transfer_bytes, b.limits().max_transfer_bytes);
  EXPECT_EQ(a.limits().queue_depth, b.limits().queue_depth);
  ASSERT_TRUE(std::ranges::equal(a.operations(), b.operations()));
  ASSERT_TRUE(std::ranges::equal(a.commands(), b.commands(), same));
  ASSERT_EQ(a.steps(), b.steps());
  ASSERT_EQ(a.batches(), b.batches());
  for (std::int64_t batch = 0; batch <= std::ssize(a.operations()); ++batch) {
    if (batch <= static_cast<std::int64_t>(a.batches())) {
      ASSERT_EQ(a.first_command(batch), b.first_command(batch));
    }
  }
}

TEST(Schedule, TheFileHoldsAllOfIt) {
  const TemporaryFolder folder;
  const std::string file = folder.file("plan.schedule");
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Schedule schedule = test::random_schedule({.steps = 1 + seed % 7}, seed);
    write_text_file(file, schedule.text());
    expect_same(Schedule::read(file), schedule);
    expect_same(Schedule::parse(schedule.text(), "text"), schedule);
  }
}

TEST(Schedule, TheFirstStepsAreThoseOfTheWhole) {
  const Schedule whole = test::random_schedule({.steps = 9}, 3);
  for (std::size_t count = 1; count <= 10; ++count) {
    const Schedule cut = whole.first_steps(count);
    ASSERT_EQ(cut.steps(), std::min<std::size_t>(count, 9));
    std::size_t commands = 0;
    for (std::size_t step = 0; step < cut.steps(); ++step) {
      ASSERT_TRUE(std::ranges::equal(cut.step(step), whole.step(step)));
      for (const auto& [kind, value] : cut.step(step)) {
        if (kind != Schedule::Kind::kSubmit) continue;
        ASSERT_TRUE(std::ranges::equal(cut.batch(value), whole.batch(value), same));
        commands += cut.batch(value).size();
      }
    }
    EXPECT_EQ(cut.commands().size(), commands);
  }
}

TEST(Schedule, WrappedCommandsLieWithinTheSmallerDevice) {
  const Schedule whole = test::random_schedule({.steps = 40}, 4);
  constexpr std::uint64_t kBytes = (3 << 20) + 12345;
  const Schedule wrapped = whole.wrapped(kBytes);
  ASSERT_EQ(wrapped.commands().size(), whole.commands().size());
  EXPECT_LE(wrapped.space_bytes(), kBytes);
  EXPECT_GT(whole.space_bytes(), kBytes);
  for (std::size_t i = 0; i < whole.commands().size(); ++i) {
    const IoCommand& before = whole.commands()[i];
    const IoCommand& after = wrapped.commands()[i];
    EXPECT_EQ(after.bytes, before.bytes);
    EXPECT_EQ(after.write, before.write);
    EXPECT_EQ(after.offset % 4096, 0u);
    if (before.offset % (3 << 20) + before.bytes <= (3 << 20)) {
      EXPECT_EQ(after.offset, before.offset % (3 << 20));
    }
  }
  EXPECT_THAT(user_error_of([&] { (void)whole.wrapped(1000); }), HasSubstr("cannot be wrapped"));
}

/// The message about a file of these lines after the first three, which are given.
std::string error_of(const std::string& lines) {
  const TemporaryFolder folder;
  const std::string file = folder.file("plan.schedule");
  std::ofstream(file) << "kvreplay schedule 1\nmade_from test\nlimits 512 4096 8\n" << lines;
  return user_error_of([&] { (void)Schedule::read(file); });
}

TEST(Schedule, EveryBadLineIsNamed) {
  const auto expect = [](const std::string& lines, int line, const std::string& says) {
    SCOPED_TRACE(lines);
    EXPECT_THAT(
        error_of(lines),
        AllOf(HasSubstr("plan.schedule: line " + std::to_string(line) + ": "), HasSubstr(says)));
  };
  expect("compute 5\n", 4, "`step`");
  expect("step now\n", 4, "`step now`");
  expect("step\ncompute -1\n", 5, "0 to 3600000000000");
  expect("step\ncompute 3600000000001\n", 5, "0 to 3600000000000");
  expect("step\ncompute 1 2\n", 5, "`compute 1 2`");
  expect("step\ncompute 1e3\n", 5, "`compute NANOSECONDS`");
  expect("step\nwait 0\n", 5, "submitted before");
  expect("step\nsubmit 1\nr 0 512\nwait 1\n", 7, "submitted before");
  expect("step\nsubmit 0\n", 5, "at least 1");
  expect("step\nsubmit 2\nr 0 512\nwait 0\n", 7, "command 2 of 2");
  expect("step\nsubmit 1\nx 0 512\n", 6, "`r OFFSET BYTES`");
  expect("step\nsubmit 1\nr 1 512\n", 6, "multiples of 512");
  expect("step\nsubmit 1\nr 0 513\n", 6, "multiples of 512");
  expect("step\nsubmit 1\nr 0 0\n", 6, "bytes from 1 to 4096");
  expect("step\nsubmit 1\nr 0 4608\n", 6, "bytes from 1 to 4096");
  expect("step\nsubmit 1\nr 9223372036854775807 512\n", 6, "`r OFFSET BYTES`");
  expect("step\nsubmit 1\nr 99999999999999999999 512\n", 6, "`r OFFSET BYTES`");
  expect("step\nsubmit 1\nr -512 512\n", 6, "`r OFFSET BYTES`");
  expect("step\nsubmit 1\nr 0\n", 6, "`r OFFSET BYTES`");
  expect("step\nsubmit 1\nr 0 512 512\n", 6, "`r OFFSET BYTES`");
  expect("step\nsubmit 3\nr 0 512\n", 7, "the file ends");
  expect("step\nsleep 3\n", 5, "step, submit, wait, compute or end");
  expect("step\n\n", 5, "step, submit, wait, compute or end");
  expect("end 0 0\n", 4, "at least one step");
  expect("step\nend 2 0\n", 5, "`end 1 0`");
  expect("step\nend 1 1\n", 5, "`end 1 0`");
  expect("step\nend 1\n", 5, "`end 1 0`");
  expect("step\nend 1 0\nstep\n", 6, "after the end");
  expect("step\ncompute 1\n", 6, "the file ends; allowed: a last line");
}

TEST(Schedule, ABadHeadIsNamed) {
  const TemporaryFolder folder;
  const std::string file = folder.file("plan.schedule");
  const auto error = [&](const std::string& text) {
    std::ofstream(file) << text;
    return user_error_of([&] { (void)Schedule::read(file); });
  };
  EXPECT_THAT(user_error_of([&] { (void)Schedule::read(folder.file("none")); }),
              HasSubstr("cannot be read"));
  EXPECT_THAT(error(""), AllOf(HasSubstr("line 1"), HasSubstr("`kvreplay schedule 1`")));
  EXPECT_THAT(error("kvreplay schedule 2\n"), HasSubstr("found `kvreplay schedule 2`"));
  EXPECT_THAT(error("kvreplay schedule 1\nfrom x\n"), HasSubstr("line 2"));
  for (const char* limits : {"limits 0 4096 8", "limits 512 4000 8", "limits 512 4096 0",
                             "limits 512 4096", "limits 512 4096 8 9", "limit 512 4096 8"}) {
    EXPECT_THAT(error("kvreplay schedule 1\nmade_from x\n" + std::string(limits) + "\n"),
                AllOf(HasSubstr("line 3"), HasSubstr("limits BLOCK_BYTES")))
        << limits;
  }
}

TEST(Schedule, ALineOfTextWhereItComesFrom) {
  EXPECT_EQ(Schedule({}, "two\nlines").made_from(), "two lines");
}

}  // namespace
}  // namespace kvreplay
