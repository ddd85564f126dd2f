#include "base/engine/process.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/engine/latch.hpp"
#include "base/engine/server.hpp"

namespace kvreplay {
namespace {

struct Journal {
  explicit Journal(Simulation& owner) : simulation(owner) {}
  void note(const std::string& text) {
    lines.push_back(std::to_string(simulation.now()) + " " + text);
  }
  Simulation& simulation;
  std::vector<std::string> lines;
};

using Lines = std::vector<std::string>;

Process wait_and_note(Journal& journal, SimTime duration, std::string name) {
  journal.note(name + " begins");
  co_await delay(journal.simulation, duration);
  journal.note(name + " ends");
}

TEST(Process, BeginsOnlyWhenSpawnedAndThenRunsUnheld) {
  Simulation simulation;
  Journal journal(simulation);
  {
    const Process never = wait_and_note(journal, 1, "never");
    simulation.spawn(wait_and_note(journal, 5, "a"));
    simulation.spawn(wait_and_note(journal, 3, "b"));
    EXPECT_TRUE(journal.lines.empty());
  }
  simulation.run();
  EXPECT_EQ(journal.lines, (Lines{"0 a begins", "0 b begins", "3 b ends", "5 a ends"}));
}

Process join_both(Journal& journal) {
  const Process slow = wait_and_note(journal, 9, "slow");
  const Process fast = wait_and_note(journal, 2, "fast");
  journal.simulation.spawn(slow);
  journal.simulation.spawn(fast);
  co_await slow;
  co_await fast;  // has ended by now: no wait
  journal.note("joined");
  EXPECT_TRUE(slow.done());
  EXPECT_TRUE(fast.done());
}

TEST(Process, JoinWaitsForTheEnd) {
  Simulation simulation;
  Journal journal(simulation);
  simulation.spawn(join_both(journal));
  simulation.run();
  EXPECT_EQ(journal.lines,
            (Lines{"0 slow begins", "0 fast begins", "2 fast ends", "9 slow ends", "9 joined"}));
}

Process join(Journal& journal, const Process& process, std::string name) {
  co_await process;
  journal.note(name + " joined");
}

TEST(Process, ManyMayJoinOne) {
  Simulation simulation;
  Journal journal(simulation);
  const Process process = wait_and_note(journal, 4, "p");
  simulation.spawn(process);
  simulation.spawn(join(journal, process, "x"));
  simulation.spawn(join(journal, process, "y"));
  simulation.run();
  EXPECT_EQ(journal.lines, (Lines{"0 p begins", "4 p ends", "4 x joined", "4 y joined"}));
}

Process sequence(Journal& journal) {
  co_await wait_and_note(journal, 1, "first");
  co_await wait_and_note(journal, 1, "second");
}

TEST(Process, AwaitingOneThatWasNotSpawnedSpawnsIt) {
  Simulation simulation;
  Journal journal(simulation);
  simulation.spawn(sequence(journal));
  simulation.run();
  EXPECT_EQ(journal.lines,
            (Lines{"0 first begins", "1 first ends", "1 second begins", "2 second ends"}));
}

TEST(Process, IsSpawnedOnce) {
  Simulation simulation;
  Journal journal(simulation);
  const Process process = wait_and_note(journal, 4, "p");
  simulation.spawn(process);
  EXPECT_THROW(simulation.spawn(process), std::logic_error);
  simulation.run();
  EXPECT_THROW(simulation.spawn(process), std::logic_error);
}

Process fail(Simulation& simulation, SimTime after) {
  if (after > 0) co_await delay(simulation, after);
  throw std::runtime_error("failed at " + std::to_string(simulation.now()));
}

TEST(Process, ExceptionsComeOutOfRun) {
  for (const SimTime after : {0, 7}) {
    Simulation simulation;
    Journal journal(simulation);
    simulation.spawn(fail(simulation, after));
    simulation.spawn(wait_and_note(journal, 20, "other"));
    try {
      simulation.run();
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "failed at " + std::to_string(after));
    }
    simulation.run();
    EXPECT_EQ(journal.lines.back(), "20 other ends");
  }
}

TEST(Process, WhoeverWaitsForAFailedOneIsNotResumed) {
  Simulation simulation;
  Journal journal(simulation);
  const Process process = fail(simulation, 3);
  simulation.spawn(join(journal, process, "x"));
  EXPECT_THROW(simulation.run(), std::runtime_error);
  simulation.run();
  EXPECT_TRUE(process.done());
  EXPECT_TRUE(journal.lines.empty());
}

// The counts below would show a leak or a double destruction without a sanitizer, too.
struct Witness {
  explicit Witness(int& count) : alive(count) { ++alive; }
  ~Witness() { --alive; }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  int& alive;
};

Process leaf(Simulation& simulation, Server& server, Latch& latch, int& alive) {
  const Witness witness(alive);
  co_await server.use(10);
  co_await delay(simulation, 10);
  co_await latch;
}

Process parent(Simulation& simulation, Server& server, Latch& latch, int& alive) {
  const Witness witness(alive);
  const Process held = leaf(simulation, server, latch, alive);
  simulation.spawn(held);
  simulation.spawn(leaf(simulation, server, latch, alive));
  co_await leaf(simulation, server, latch, alive);
}

Process stop(Simulation& simulation, SimTime at) {
  co_await delay(simulation, at);
  throw std::runtime_error("stopped");
}

TEST(Process, ASimulationDestroyedEarlyLeaksNothing) {
  for (const SimTime at : {0, 1, 10, 15, 25, 100}) {
    int alive = 0;
    std::optional<Process> outside;
    {
      Simulation simulation;
      Server server(simulation);
      Latch latch(simulation, 1);  // nobody opens it
      const Process unspawned = leaf(simulation, server, latch, alive);
      outside = leaf(simulation, server, latch, alive);
      simulation.spawn(*outside);
      simulation.spawn(parent(simulation, server, latch, alive));
      simulation.spawn(stop(simulation, at));
      EXPECT_THROW(simulation.run(), std::runtime_error);
      EXPECT_EQ(alive, 5);
    }
    EXPECT_EQ(alive, 1) << "only the frame that is held outside may remain";
    outside.reset();
    EXPECT_EQ(alive, 0);
  }
}

TEST(Process, FramesAreFreedAsProcessesEnd) {
  int alive = 0;
  Simulation simulation;
  Server server(simulation);
  Latch latch(simulation, 2);
  simulation.spawn(parent(simulation, server, latch, alive));
  simulation.schedule(500, latch, 0);
  simulation.schedule(600, latch, 0);
  simulation.run();
  EXPECT_EQ(simulation.now(), 600);
  EXPECT_EQ(alive, 0);
}

TEST(Latch, OpensAfterItsCountAndStaysOpen) {
  Simulation simulation;
  Latch latch(simulation, 3);
  for (const SimTime at : {10, 20, 30, 40}) simulation.schedule(at, latch, 0);
  Journal journal(simulation);
  const auto waiter = [](Journal& to, Latch& on, SimTime start) -> Process {
    co_await delay(to.simulation, start);
    co_await on;
    to.note("through");
  };
  for (const SimTime start : {1, 2, 35}) simulation.spawn(waiter(journal, latch, start));
  simulation.run();
  EXPECT_EQ(journal.lines, (Lines{"30 through", "30 through", "35 through"}));
  EXPECT_TRUE(Latch(simulation, 0).is_open());
}

}  // namespace
}  // namespace kvreplay
