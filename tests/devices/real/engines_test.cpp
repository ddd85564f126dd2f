// Every engine, compared with a file of known bytes and with the other engines.

#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "base/random.hpp"
#include "devices/real/aligned_buffer.hpp"
#include "devices/real/io_engine.hpp"
#include "tests/devices/real/target_file.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class EnginesTest : public test::TargetFile {
 protected:
  static std::uint32_t depth_of(const std::string& engine) { return engine == "sync" ? 1 : 8; }

  static std::unique_ptr<IoEngine> make(const std::string& name, const BlockTarget& target,
                                        const AlignedBuffer& memory) {
    return PartConfig<IoEngine>::by_name(name).make({target, memory.bytes(), depth_of(name)});
  }

  /// Requests of mixed sizes at random places, each with its own place in memory.
  std::vector<IoRequest> random_requests(std::size_t count, std::uint64_t seed) const {
    Random random(seed);
    std::vector<IoRequest> requests;
    std::uint64_t memory = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto blocks = static_cast<std::uint32_t>(1 + random.below(16));
      const std::uint32_t bytes = blocks * block_;
      const std::uint64_t offset = random.below((kBytes - bytes) / block_ + 1) * block_;
      requests.push_back({{offset, bytes, false}, memory});
      memory += (bytes + 4095) / 4096 * 4096;
    }
    return requests;
  }
  static std::size_t memory_for(const std::vector<IoRequest>& requests) {
    return requests.back().memory_offset + requests.back().command.bytes;
  }
};

TEST_F(EnginesTest, ReadTheRightBytes) {
  const BlockTarget target = BlockTarget::open(path_);
  const std::vector<IoRequest> requests = random_requests(300, 1);
  for (const std::string& name : engines(target)) {
    SCOPED_TRACE(name);
    const AlignedBuffer memory(memory_for(requests), target.alignment().memory_bytes);
    const auto engine = make(name, target, memory);
    const IoReport report = run_all(*engine, requests, depth_of(name));
    ASSERT_FALSE(report.failure) << report.failure->to_error(target.path()).what();
    ASSERT_EQ(report.completions.size(), requests.size());
    std::set<std::uint64_t> seen;
    for (const IoCompletion& completion : report.completions) {
      EXPECT_TRUE(seen.insert(completion.index).second);
      EXPECT_LT(completion.submitted_ns, completion.completed_ns);
      EXPECT_FALSE(completion.write);
    }
    EXPECT_TRUE(std::is_sorted(
        report.completions.begin(), report.completions.end(),
        [](const auto& a, const auto& b) { return a.completed_ns < b.completed_ns; }));
    for (const IoRequest& request : requests) {
      const auto read = memory.bytes().subspan(request.memory_offset, request.command.bytes);
      const auto truth = test::known_bytes(request.command.offset, request.command.bytes);
      ASSERT_TRUE(std::equal(read.begin(), read.end(), truth.begin()))
          << "offset " << request.command.offset << ", " << request.command.bytes << " bytes";
    }
  }
}

TEST_F(EnginesTest, WriteTheRightBytes) {
  for (const std::string& name : engines(BlockTarget::open(path_))) {
    SCOPED_TRACE(name);
    test::write_file(path_, std::vector<std::byte>(kBytes));
    {
      const BlockTarget target = BlockTarget::open_destructive(path_);
      const AlignedBuffer memory(kBytes, target.alignment().memory_bytes);
      const auto content = test::known_bytes(0, kBytes);
      std::copy(content.begin(), content.end(), memory.bytes().begin());
      std::vector<IoRequest> requests;
      for (std::uint64_t offset = 0; offset < kBytes; offset += 128 * 1024) {
        requests.push_back({{offset, 128 * 1024, true}, offset});
      }
      Random(7).shuffle(std::span(requests));
      const auto engine = make(name, target, memory);
      const IoReport report = run_all(*engine, requests, depth_of(name));
      ASSERT_FALSE(report.failure) << report.failure->to_error(target.path()).what();
      ASSERT_EQ(report.completions.size(), requests.size());
      EXPECT_TRUE(report.completions.front().write);
    }
    EXPECT_EQ(test::read_file(path_), test::known_bytes(0, kBytes));
  }
}

TEST_F(EnginesTest, KeepNoMoreThanTheDepthOutstanding) {
  const BlockTarget target = BlockTarget::open(path_);
  const std::vector<IoRequest> requests = random_requests(200, 2);
  for (const std::string& name : engines(target)) {
    SCOPED_TRACE(name);
    const AlignedBuffer memory(memory_for(requests), target.alignment().memory_bytes);
    const auto engine = make(name, target, memory);
    for (const std::uint32_t depth : {1u, std::min(3u, depth_of(name))}) {
      const IoReport report = run_all(*engine, requests, depth);
      std::vector<std::pair<std::int64_t, int>> edges;
      for (const IoCompletion& completion : report.completions) {
        edges.emplace_back(completion.completed_ns, -1);
        edges.emplace_back(completion.submitted_ns, +1);
      }
      std::sort(edges.begin(), edges.end());
      int outstanding = 0;
      for (const auto& [time, change] : edges) {
        outstanding += change;
        ASSERT_LE(outstanding, static_cast<int>(depth));
      }
    }
  }
}

TEST_F(EnginesTest, AskForEachIndexOnceAndStopAtTheEndOfTheSource) {
  const BlockTarget target = BlockTarget::open(path_);
  for (const std::string& name : engines(target)) {
    SCOPED_TRACE(name);
    constexpr std::uint64_t kRequests = 100;
    const AlignedBuffer memory(kRequests * block_, target.alignment().memory_bytes);
    const auto engine = make(name, target, memory);
    std::atomic<std::uint64_t> requested{0};
    const IoReport report = engine->run(
        [&](std::uint64_t index) -> std::optional<IoRequest> {
          ++requested;
          if (index >= kRequests) return std::nullopt;
          return IoRequest{{index * block_, block_, false}, index * block_};
        },
        depth_of(name));
    EXPECT_EQ(report.completions.size(), kRequests);
    EXPECT_GE(requested, kRequests + 1);
    EXPECT_LE(requested, kRequests + depth_of(name));
  }
}

TEST_F(EnginesTest, AFileThatBecameShorterIsAFailureAndWhatWasReadIsKept) {
  const BlockTarget target = BlockTarget::open(path_);
  ASSERT_EQ(::truncate(path_.c_str(), kBytes / 2 + block_), 0);
  for (const std::string& name : engines(target)) {
    SCOPED_TRACE(name);
    const AlignedBuffer memory(4 * block_, target.alignment().memory_bytes);
    const auto engine = make(name, target, memory);
    std::vector<IoRequest> requests;
    for (std::uint64_t i = 0; i < 20; ++i) requests.push_back({{i * block_, block_, false}, 0});
    requests.push_back({{kBytes / 2, 4 * block_, false}, 0});
    const IoReport report = run_all(*engine, requests, 1);
    EXPECT_EQ(report.completions.size(), 20u);
    ASSERT_TRUE(report.failure);
    EXPECT_EQ(report.failure->error, 0);
    EXPECT_EQ(report.failure->transferred_bytes, block_);
    EXPECT_THAT(report.failure->to_error(target.path()).what(),
                AllOf(HasSubstr(path_), HasSubstr("at offset " + std::to_string(kBytes / 2)),
                      HasSubstr("transferred only " + std::to_string(block_))));
  }
}

TEST_F(EnginesTest, AnErrorOfTheKernelStopsTheRunAndSaysWhere) {
  const BlockTarget target = BlockTarget::open(path_);
  for (const std::string& name : engines(target)) {
    SCOPED_TRACE(name);
    constexpr std::uint64_t kRequests = 1000;
    const AlignedBuffer memory(kRequests * block_, target.alignment().memory_bytes);
    const auto engine = make(name, target, memory);
    std::vector<IoRequest> requests;
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      requests.push_back({{0, block_, false}, i * block_});
    }
    requests[50].command.offset = 1;  // EINVAL: against the alignment
    const IoReport report = run_all(*engine, requests, depth_of(name));
    ASSERT_TRUE(report.failure);
    EXPECT_EQ(report.failure->error, EINVAL);
    EXPECT_GE(report.completions.size(), 49u);
    EXPECT_LT(report.completions.size(), 999u) << "went on after the failure";
    EXPECT_THAT(report.failure->to_error(target.path()).what(),
                HasSubstr("at offset 1 failed (Invalid argument)"));
    // The engine works normally afterwards.
    requests[50].command.offset = 0;
    EXPECT_EQ(run_all(*engine, requests, depth_of(name)).completions.size(), 1000u);
  }
}

TEST_F(EnginesTest, SyncRefusesADepth) {
  const BlockTarget target = BlockTarget::open(path_);
  const AlignedBuffer memory(block_, target.alignment().memory_bytes);
  EXPECT_THAT(user_error_of([&] {
                (void)PartConfig<IoEngine>::by_name("sync").make({target, memory.bytes(), 2});
              }),
              HasSubstr("allowed: depth 1"));
}

TEST_F(EnginesTest, AnUnknownEngineIsNamedWithTheNearest) {
  const BlockTarget target = BlockTarget::open(path_);
  EXPECT_THAT(user_error_of([&] { (void)choose_engine(target, "thread"); }),
              HasSubstr("did you mean 'threads'?"));
}

/// Answers `calls` with `action` in this process and its children, like a phone's filter.
bool install_filter(const std::vector<int>& calls, std::uint32_t action) {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, action));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// What is chosen under the filter: "io_uring: killed by signal 31 (...) | aio".
std::string chosen_under_filter(const std::string& path, const std::vector<int>& calls,
                                std::uint32_t action) {
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said;
    if (!install_filter(calls, action)) {
      said = "no seccomp";
    } else {
      try {
        const EngineChoice choice = choose_engine(BlockTarget::open(path), "");
        for (const auto& [engine, reason] : choice.refused) said += engine + ": " + reason + " | ";
        said += choice.name;
      } catch (const std::exception& error) {
        said = error.what();
      }
    }
    const ssize_t written = ::write(pipe[1], said.data(), said.size());
    ::_exit(written < 0 ? 1 : 0);
  }
  ::close(pipe[1]);
  std::string said;
  std::array<char, 1024> text{};
  for (ssize_t got = 0; (got = ::read(pipe[0], text.data(), text.size())) > 0;) {
    said.append(text.data(), static_cast<std::size_t>(got));
  }
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? said : "the process that chose was killed";
}

TEST_F(EnginesTest, AFilterThatKillsWhoTriesIoUringCostsOnlyTheChild) {
  const std::string said = chosen_under_filter(path_, {SYS_io_uring_setup}, SECCOMP_RET_TRAP);
  if (said == "no seccomp") GTEST_SKIP() << said;
  EXPECT_THAT(said, AllOf(HasSubstr("io_uring: killed by signal 31"), HasSubstr("| aio")));
}

TEST_F(EnginesTest, ARefusedIoUringFallsBackToo) {
  const std::string said =
      chosen_under_filter(path_, {SYS_io_uring_setup}, SECCOMP_RET_ERRNO | EPERM);
  if (said == "no seccomp") GTEST_SKIP() << said;
  EXPECT_THAT(said, AllOf(HasSubstr("io_uring_setup failed (Operation not permitted)"),
                          HasSubstr("| aio")));
}

TEST_F(EnginesTest, WithoutQueuesInTheKernelThreadsRemain) {
  const std::string said =
      chosen_under_filter(path_, {SYS_io_uring_setup, SYS_io_setup}, SECCOMP_RET_KILL_PROCESS);
  if (said == "no seccomp") GTEST_SKIP() << said;
  EXPECT_THAT(said, AllOf(HasSubstr("aio: killed by signal 31"), HasSubstr("| threads")));
}

}  // namespace
}  // namespace kvreplay
