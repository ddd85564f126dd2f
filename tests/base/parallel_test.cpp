#include "base/parallel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace kvreplay {
namespace {

TEST(ParallelTest, RunsEachIndexOnce) {
  for (const int threads : {1, 2, 8}) {
    for (const std::int64_t count : {0, 1, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      parallel_for(count, threads, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
      for (const std::atomic<int>& run : runs) ASSERT_EQ(run, 1);
    }
  }
}

TEST(ParallelTest, OneThreadIsTheCallerInOrder) {
  std::vector<std::int64_t> order;
  const auto caller = std::this_thread::get_id();
  parallel_for(20, 1, [&](std::int64_t i) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(i);
  });
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(order[i], static_cast<std::int64_t>(i));
  }
  EXPECT_EQ(order.size(), 20U);
}

/// Each index waits for the other: only two threads at once can finish.
TEST(ParallelTest, ThreadsRunAtOnce) {
  std::atomic<int> arrived{0};
  parallel_for(2, 2, [&](std::int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ParallelTest, FewerThreadsThanOneAreOne) {
  int runs = 0;
  parallel_for(3, 0, [&](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 3);
}

TEST(ParallelTest, TheLowestFailureIsRethrown) {
  for (const int threads : {1, 2, 8}) {
    for (int round = 0; round < 20; ++round) {
      std::string message;
      try {
        parallel_for(100, threads, [](std::int64_t i) {
          if (i >= 13) throw std::runtime_error(std::to_string(i));
        });
      } catch (const std::runtime_error& error) {
        message = error.what();
      }
      ASSERT_EQ(message, "13");
    }
  }
}

TEST(ParallelTest, APoolServesOneLoopAfterAnother) {
  for (const int threads : {1, 2, 5}) {
    WorkerPool pool(threads);
    for (const std::int64_t count : {0, 1, 2, 100}) {
      std::vector<int> seen(static_cast<std::size_t>(count));
      pool.run(count, [&](std::int64_t i) { ++seen[static_cast<std::size_t>(i)]; });
      EXPECT_THAT(seen, testing::Each(1));
    }
    EXPECT_THROW(pool.run(8,
                          [](std::int64_t i) {
                            if (i >= 3) throw std::invalid_argument("work");
                          }),
                 std::invalid_argument);
    std::vector<int> seen(50);
    pool.run(50, [&](std::int64_t i) { ++seen[static_cast<std::size_t>(i)]; });
    EXPECT_THAT(seen, testing::Each(1));
  }
}

TEST(ParallelTest, StopsEarlyAfterAFailure) {
  std::atomic<int> runs{0};
  EXPECT_THROW(parallel_for(1'000'000, 1,
                            [&](std::int64_t i) {
                              ++runs;
                              if (i == 5) throw std::runtime_error("stop");
                            }),
               std::runtime_error);
  EXPECT_EQ(runs, 6);
}

/// In each loop the two indices wait for each other, so that a helper which missed it would hang
/// it.
TEST(ParallelTest, HelpersComeWhetherTheyWatchOrSleep) {
  WorkerPool pool(2);
  for (int round = 0; round < 300; ++round) {
    if (round % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> arrived{0};
    pool.run(2, [&](std::int64_t) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
    ASSERT_EQ(arrived, 2);
  }
}

}  // namespace
}  // namespace kvreplay
