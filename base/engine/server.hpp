#pragma once

#include <algorithm>
#include <coroutine>
#include <cstdint>

#include "base/engine/process.hpp"
#include "base/engine/simulation.hpp"

namespace kvreplay {

/// A resource that serves one job at a time, first come first served, and is never idle while a job
/// waits. The end of such a job is known when it arrives, so the queue is only the time at which
/// the server becomes free, and a job costs one event.
class Server {
 public:
  explicit Server(Simulation& simulation) : simulation_(&simulation) {}

  /// Queues a job of `service` nanoseconds; `done.on_event(argument)` is called at its end.
  void use(SimTime service, EventHandler& done, std::uint64_t argument) {
    free_at_ = std::max(free_at_, simulation_->now()) + service;
    busy_ += service;
    simulation_->schedule(free_at_, done, argument);
  }

  class Use {
   public:
    Use(Server& server, SimTime service) : server_(server), service_(service) {}
    [[nodiscard]] bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<ProcessPromise> waiter) const {
      server_.use(service_, waiter.promise(), 0);
    }
    void await_resume() const {}

   private:
    Server& server_;
    SimTime service_;
  };
  /// Awaitable: queues the job and resumes at its end.
  [[nodiscard]] Use use(SimTime service) { return {*this, service}; }

  /// When the last job queued so far ends; in the past if the server is idle.
  [[nodiscard]] SimTime free_at() const { return free_at_; }
  /// Total service time of all jobs queued so far.
  [[nodiscard]] SimTime busy() const { return busy_; }

 private:
  Simulation* simulation_;
  SimTime free_at_ = 0;
  SimTime busy_ = 0;
};

}  // namespace kvreplay
