#include "base/engine/server.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <utility>
#include <vector>

#include "base/random.hpp"

namespace kvreplay {
namespace {

using Done = std::vector<std::pair<SimTime, std::uint64_t>>;

/// Arrivals at given times, as the events of the simulation.
struct Arrivals final : EventHandler {
  struct Job {
    SimTime at;
    SimTime service;
  };
  struct Completions final : EventHandler {
    explicit Completions(Simulation& owner) : simulation(owner) {}
    void on_event(std::uint64_t argument) override {
      done.emplace_back(simulation.now(), argument);
    }
    Simulation& simulation;
    Done done;
  };

  explicit Arrivals(std::vector<Job> given) : jobs(std::move(given)) {
    for (std::size_t i = 0; i < jobs.size(); ++i) simulation.schedule(jobs[i].at, *this, i);
    simulation.run();
  }
  void on_event(std::uint64_t argument) override {
    server.use(jobs[argument].service, completions, argument);
  }

  std::vector<Job> jobs;
  Simulation simulation;
  Server server{simulation};
  Completions completions{simulation};
};

/// One nanosecond at a time: serve the head of the queue.
Done reference(const std::vector<Arrivals::Job>& jobs) {
  Done done;
  std::deque<std::size_t> queue;
  SimTime served = 0;
  for (SimTime now = 0; done.size() < jobs.size(); ++now) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (jobs[i].at == now) queue.push_back(i);
    }
    if (queue.empty()) continue;
    if (++served == jobs[queue.front()].service) {
      done.emplace_back(now + 1, queue.front());
      queue.pop_front();
      served = 0;
    }
  }
  return done;
}

TEST(Server, IsFirstComeFirstServedAndWorkConserving) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    std::vector<Arrivals::Job> jobs;
    SimTime at = 0;
    SimTime work = 0;
    for (int i = 0; i < 60; ++i) {
      at += static_cast<SimTime>(random.below(12));
      jobs.push_back({at, 1 + static_cast<SimTime>(random.below(9))});
      work += jobs.back().service;
    }
    const Arrivals run(jobs);
    EXPECT_EQ(run.completions.done, reference(jobs)) << "seed " << seed;
    EXPECT_EQ(run.server.busy(), work);
    EXPECT_EQ(run.server.free_at(), run.simulation.now());
  }
}

Process use_twice(Simulation& simulation, Server& server, std::vector<SimTime>& ends) {
  co_await server.use(10);
  ends.push_back(simulation.now());
  co_await server.use(10);
  ends.push_back(simulation.now());
}

TEST(Server, ProcessesTakeTurns) {
  Simulation simulation;
  Server server(simulation);
  std::vector<SimTime> first;
  std::vector<SimTime> second;
  simulation.spawn(use_twice(simulation, server, first));
  simulation.spawn(use_twice(simulation, server, second));
  simulation.run();
  EXPECT_EQ(first, (std::vector<SimTime>{10, 30}));
  EXPECT_EQ(second, (std::vector<SimTime>{20, 40}));
}

/// Poisson arrivals at one server of constant service time: M/D/1.
struct PoissonQueue final : EventHandler {
  static constexpr SimTime kService = 100'000;

  PoissonQueue(double load, std::uint64_t jobs, std::uint64_t seed)
      : left(jobs), mean_gap(static_cast<double>(kService) / load), random(seed) {
    simulation.schedule(0, *this, 0);
    simulation.run();
  }
  void on_event(std::uint64_t argument) override {
    if (argument == 1) return;  // a completion
    waited += static_cast<double>(std::max<SimTime>(server.free_at() - simulation.now(), 0));
    server.use(kService, *this, 1);
    if (--left == 0) return;
    const double gap = -std::log(1.0 - random.uniform()) * mean_gap;
    simulation.schedule(simulation.now() + std::llround(gap), *this, 0);
  }

  Simulation simulation;
  Server server{simulation};
  std::uint64_t left;
  double mean_gap;
  Random random;
  double waited = 0;
};

// Pollaczek-Khinchine for constant service: W = rho S / (2 (1 - rho)).
TEST(Server, WaitsAsLongAsAnMD1Queue) {
  constexpr std::uint64_t kJobs = 1'000'000;
  for (const double load : {0.2, 0.5, 0.7}) {
    const PoissonQueue queue(load, kJobs, 3);
    const double measured = queue.waited / static_cast<double>(kJobs);
    const double expected = load * static_cast<double>(PoissonQueue::kService) / (2 * (1 - load));
    std::printf("M/D/1 load %.1f: wait %.1f ns, formula %.1f ns, deviation %+.2f %%\n", load,
                measured, expected, 100 * (measured / expected - 1));
    EXPECT_NEAR(measured / expected, 1, 0.01);
  }
}

}  // namespace
}  // namespace kvreplay
