#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace kvreplay {

/// One step of a pipeline: a coroutine that a machine runs. It awaits only what that machine offers
/// (machine.hpp), so it needs no clock and no event queue:
///
///   StepTask step(Machine& machine) const override {
///     co_await machine.compute(Kernels::kAttend, 0);
///   }
///
/// It begins with start(). Everything it refers to must outlive it. Destroying a step that has not
/// ended destroys its locals.
class [[nodiscard]] StepTask {
 public:
  class promise_type {
   public:
    StepTask get_return_object() { return StepTask(*this); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { failure_ = std::current_exception(); }

    /// Continues until it waits again or ends.
    void resume() { std::coroutine_handle<promise_type>::from_promise(*this).resume(); }

   private:
    friend class StepTask;
    std::exception_ptr failure_;
  };

  StepTask(StepTask&& other) noexcept : promise_(std::exchange(other.promise_, nullptr)) {}
  StepTask& operator=(StepTask&&) = delete;
  ~StepTask() {
    if (promise_ != nullptr) frame().destroy();
  }

  /// May be called once. Runs until the step waits or ends.
  void start() { promise_->resume(); }
  /// Whether it has returned or thrown.
  [[nodiscard]] bool done() const { return frame().done(); }
  /// Throws what escaped from a finished step.
  void rethrow() const {
    if (promise_->failure_) std::rethrow_exception(promise_->failure_);
  }

 private:
  explicit StepTask(promise_type& promise) : promise_(&promise) {}

  [[nodiscard]] std::coroutine_handle<promise_type> frame() const {
    return std::coroutine_handle<promise_type>::from_promise(*promise_);
  }

  promise_type* promise_;
};

/// A waiting step, for the machine that resumes it.
using WaitingStep = StepTask::promise_type;

}  // namespace kvreplay
