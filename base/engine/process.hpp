#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "base/engine/simulation.hpp"

namespace kvreplay {

/// The coroutine side of a Process. It is an event handler, so anything that can wake a handler
/// (the simulation, a server, a device) can resume a process. Awaitables take it from their
/// coroutine handle and need to know nothing else about coroutines.
class ProcessPromise final : public EventHandler {
 public:
  Process get_return_object();
  std::suspend_always initial_suspend() noexcept { return {}; }
  std::suspend_always final_suspend() noexcept { return {}; }
  void return_void() {}
  void unhandled_exception() { failure_ = std::current_exception(); }

  /// Resumes the coroutine. Throws the exception that escaped from it.
  void on_event(std::uint64_t argument) override;

 private:
  friend class Process;
  friend class Simulation;

  [[nodiscard]] std::coroutine_handle<ProcessPromise> frame() {
    return std::coroutine_handle<ProcessPromise>::from_promise(*this);
  }

  // The frame has two owners: the simulation while the process runs, and the Process object. The
  // last owner to let go destroys it.
  Simulation* simulation_ = nullptr;  ///< while it runs
  bool has_object_ = true;

  std::size_t index_ = 0;  ///< in Simulation::processes_
  std::vector<EventHandler*> joiners_;
  std::exception_ptr failure_;
};

/// A coroutine on a simulation's clock:
///
///   Process step(Simulation& simulation, Server& cpu) {
///     co_await delay(simulation, 500);
///     co_await cpu.use(2'000);
///   }
///   simulation.spawn(step(simulation, cpu));
///
/// The process begins when it is spawned. `co_await process` waits for its end, and spawns it if it
/// has not been spawned. Dropping the object neither stops nor leaks a running process. An
/// exception that escapes from the process comes out of Simulation::run; whoever waits for the
/// process is not resumed.
///
/// Anything that a process refers to must outlive its last resumption. A frame that the simulation
/// destroys early runs the destructors of its locals, so these must not touch what may be gone by
/// then. Never spawn a lambda with captures, because they die with the lambda object; pass
/// parameters instead.
class [[nodiscard]] Process {
 public:
  using promise_type = ProcessPromise;

  Process(Process&& other) noexcept : promise_(std::exchange(other.promise_, nullptr)) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(promise_, other.promise_);
    return *this;
  }
  ~Process();

  /// Whether it has returned or thrown.
  [[nodiscard]] bool done() const { return promise_->frame().done(); }

  [[nodiscard]] bool await_ready() const { return done(); }
  void await_suspend(std::coroutine_handle<ProcessPromise> waiter) const;
  void await_resume() const {}

 private:
  friend class ProcessPromise;
  friend class Simulation;
  explicit Process(ProcessPromise& promise) : promise_(&promise) {}

  ProcessPromise* promise_;
};

/// Awaitable: resumes `duration` nanoseconds from now; 0 lets the other events of this time run
/// first.
class Delay {
 public:
  Delay(Simulation& simulation, SimTime duration) : simulation_(simulation), duration_(duration) {}
  [[nodiscard]] bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<ProcessPromise> waiter) const {
    simulation_.schedule(simulation_.now() + duration_, waiter.promise(), 0);
  }
  void await_resume() const {}

 private:
  Simulation& simulation_;
  SimTime duration_;
};

[[nodiscard]] inline Delay delay(Simulation& simulation, SimTime duration) {
  return {simulation, duration};
}

}  // namespace kvreplay
