#pragma once

#include <coroutine>
#include <cstdint>
#include <vector>

#include "base/engine/process.hpp"
#include "base/engine/simulation.hpp"

namespace kvreplay {

/// Opens permanently after `count` completions. It is an event handler, so it can be the `done` of
/// servers and devices; `co_await latch` resumes once it is open.
class Latch final : public EventHandler {
 public:
  Latch(Simulation& simulation, std::uint64_t count) : simulation_(simulation), left_(count) {}
  Latch(const Latch&) = delete;
  Latch& operator=(const Latch&) = delete;

  /// Counts one completion; those after the last are ignored.
  void count_down() {
    if (left_ == 0 || --left_ > 0) return;
    for (EventHandler* waiter : waiters_) simulation_.schedule(simulation_.now(), *waiter, 0);
    waiters_.clear();
  }
  void on_event(std::uint64_t /*argument*/) override { count_down(); }

  [[nodiscard]] bool is_open() const { return left_ == 0; }

  [[nodiscard]] bool await_ready() const { return is_open(); }
  void await_suspend(std::coroutine_handle<ProcessPromise> waiter) {
    waiters_.push_back(&waiter.promise());
  }
  void await_resume() const {}

 private:
  Simulation& simulation_;
  std::uint64_t left_;
  std::vector<EventHandler*> waiters_;
};

}  // namespace kvreplay
