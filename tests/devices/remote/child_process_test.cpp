// Programs at the other end of pipes: they talk, end, hang, or refuse to read.

#include "devices/remote/child_process.hpp"

#include <gmock/gmock.h>

#include <csignal>

#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::string read_all(ChildProcess& child) {
  std::string all;
  while (const auto piece = child.read(60s)) all += *piece;
  return all;
}

ChildProcess sh(const std::string& line) {
  return ChildProcess({"/bin/sh", "-c", line});
}

TEST(ChildProcess, ReadsWhatWasWritten) {
  ChildProcess child({"cat"});
  const std::string text(10'000, 'x');
  EXPECT_TRUE(child.write(text, 60s));
  child.close_input();
  EXPECT_EQ(read_all(child), text);
  EXPECT_EQ(child.wait(60s), 0);
}

TEST(ChildProcess, TellsExitCodeAndLastWords) {
  ChildProcess child = sh("echo first >&2; echo second line >&2; exit 7");
  EXPECT_EQ(read_all(child), "");
  EXPECT_EQ(child.wait(60s), 7);
  EXPECT_EQ(child.last_words(), "first / second line");
}

TEST(ChildProcess, LastWordsAreOfFourLinesAtMost) {
  ChildProcess child = sh("printf '\\n1\\n2\\r\\n\\n3\\n4\\n5\\n\\n' >&2");
  EXPECT_EQ(read_all(child), "");
  EXPECT_EQ(child.wait(60s), 0);
  EXPECT_EQ(child.last_words(), "2 / 3 / 4 / 5");
}

TEST(ChildProcess, MuchOnStandardErrorBlocksNobody) {
  ChildProcess child =
      sh("i=0; while [ $i -lt 20000 ]; do echo 'a long complaint' >&2; "
         "i=$((i+1)); done; echo done");
  EXPECT_EQ(read_all(child), "done\n");
  EXPECT_THAT(child.last_words(), HasSubstr("a long complaint / a long complaint"));
}

TEST(ChildProcess, OneThatEndedTakesNothing) {
  ChildProcess child({"true"});
  EXPECT_EQ(child.wait(60s), 0);
  EXPECT_FALSE(child.write(std::string(1 << 20, 'x'), 60s));
}

TEST(ChildProcess, OneThatDoesNotReadOrSpeakIsNotWaitedFor) {
  ChildProcess child({"sleep", "1000"});
  EXPECT_FALSE(child.write(std::string(16 << 20, 'x'), 50ms));
  EXPECT_EQ(child.read(10ms), "");
  EXPECT_FALSE(child.wait(10ms));
}

TEST(ChildProcess, ItsEndIsTheEndOfItsChildrenToo) {
  std::string process;
  {
    ChildProcess child = sh("sleep 1000 & echo $!; wait");
    process = *child.read(60s);
  }
  // The kernel may take a moment to reap it.
  for (int i = 0; i < 1000 && ::kill(std::stoi(process), 0) == 0; ++i) ::usleep(10'000);
  EXPECT_NE(::kill(std::stoi(process), 0), 0);
}

TEST(ChildProcess, AnUnknownProgramIsAnError) {
  EXPECT_THAT(user_error_of([] { ChildProcess({"no-such-program-here"}); }),
              HasSubstr("no-such-program-here: cannot be started (No such file"));
}

}  // namespace
}  // namespace kvreplay
