#include "base/engine/simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/random.hpp"

namespace kvreplay {
namespace {

struct Log final : EventHandler {
  explicit Log(Simulation& owner) : simulation(owner) {}
  void on_event(std::uint64_t argument) override { seen.emplace_back(simulation.now(), argument); }
  Simulation& simulation;
  std::vector<std::pair<SimTime, std::uint64_t>> seen;
};

TEST(Simulation, RunsEventsByTimeThenInOrderOfScheduling) {
  Simulation simulation;
  Log log(simulation);
  Random random(1);
  std::vector<std::pair<SimTime, std::uint64_t>> expected;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const auto at = static_cast<SimTime>(random.below(300));
    simulation.schedule(at, log, i);
    expected.emplace_back(at, i);
  }
  simulation.run();
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(log.seen, expected);
  EXPECT_EQ(simulation.events_run(), 5000u);
}

/// Each event schedules others, so that pushes and pops interleave.
struct Branching final : EventHandler {
  explicit Branching(Simulation& owner) : simulation(owner) {}
  void on_event(std::uint64_t argument) override {
    seen.emplace_back(simulation.now(), argument);
    const std::uint64_t children = seen.size() < 2000 ? random.below(4) : 0;
    for (std::uint64_t i = 0; i < children; ++i) {
      const SimTime at = simulation.now() + static_cast<SimTime>(random.below(20));
      simulation.schedule(at, *this, next++);
    }
  }
  Simulation& simulation;
  Random random{7};
  std::uint64_t next = 1;
  std::vector<std::pair<SimTime, std::uint64_t>> seen;
};

TEST(Simulation, TimeNeverGoesBackAndTiesKeepTheirOrderWhileEventsAreAdded) {
  Simulation simulation;
  Branching branching(simulation);
  for (int i = 0; i < 50; ++i) simulation.schedule(i, branching, branching.next++);
  simulation.run();
  ASSERT_GT(branching.seen.size(), 2000u);
  EXPECT_EQ(branching.seen.size(), branching.next - 1);
  // An event's argument is its place in the order of scheduling, so (time, argument) must ascend.
  EXPECT_TRUE(std::is_sorted(branching.seen.begin(), branching.seen.end()));
}

TEST(Simulation, IsDeterministic) {
  const auto run = [] {
    Simulation simulation;
    Branching branching(simulation);
    for (int i = 0; i < 50; ++i) simulation.schedule(i % 3, branching, branching.next++);
    simulation.run();
    return branching.seen;
  };
  EXPECT_EQ(run(), run());
}

TEST(Simulation, RunsInStepsAsItRunsAtOnce) {
  const auto seen = [](bool in_steps) {
    Simulation simulation;
    Branching branching(simulation);
    for (int i = 0; i < 50; ++i) simulation.schedule(i % 3, branching, branching.next++);
    for (SimTime at = 0; in_steps && simulation.next_at(); at += 7) {
      simulation.run_until(at);
      EXPECT_EQ(simulation.now(), at);
      EXPECT_TRUE(!simulation.next_at() || *simulation.next_at() > at);
      EXPECT_LE(branching.seen.empty() ? 0 : branching.seen.back().first, at);
    }
    simulation.run();
    return branching.seen;
  };
  EXPECT_EQ(seen(true), seen(false));
}

TEST(Simulation, AnEarlierTimeThanNowRunsNothing) {
  Simulation simulation;
  Log log(simulation);
  simulation.run_until(10);
  simulation.schedule(12, log, 0);
  simulation.run_until(5);
  EXPECT_EQ(simulation.now(), 10);
  EXPECT_EQ(simulation.next_at(), 12);
  simulation.run_until(12);
  EXPECT_EQ(log.seen.size(), 1u);
  EXPECT_EQ(simulation.next_at(), std::nullopt);
}

TEST(Simulation, RefusesThePast) {
  Simulation simulation;
  Log log(simulation);
  simulation.schedule(10, log, 0);
  simulation.run();
  EXPECT_EQ(simulation.now(), 10);
  EXPECT_THROW(simulation.schedule(9, log, 0), std::logic_error);
  simulation.schedule(10, log, 1);
  simulation.run();
  EXPECT_EQ(log.seen.back(), (std::pair<SimTime, std::uint64_t>{10, 1}));
}

TEST(Simulation, GoesOnAfterAHandlerHasThrown) {
  struct Thrower final : EventHandler {
    void on_event(std::uint64_t /*argument*/) override { throw std::runtime_error("thrown"); }
  } thrower;
  Simulation simulation;
  Log log(simulation);
  simulation.schedule(1, thrower, 0);
  simulation.schedule(2, log, 5);
  EXPECT_THROW(simulation.run(), std::runtime_error);
  EXPECT_TRUE(log.seen.empty());
  simulation.run();
  ASSERT_EQ(log.seen.size(), 1u);
}

}  // namespace
}  // namespace kvreplay
