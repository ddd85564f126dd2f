#include "base/engine/process.hpp"

#include <stdexcept>

namespace kvreplay {

Process ProcessPromise::get_return_object() {
  return Process(*this);
}

void ProcessPromise::on_event(std::uint64_t /*argument*/) {
  frame().resume();
  if (!frame().done()) return;

  std::vector<ProcessPromise*>& running = simulation_->processes_;
  running.back()->index_ = index_;
  std::swap(running[index_], running.back());
  running.pop_back();
  const std::exception_ptr failure = failure_;
  if (!failure) {
    for (EventHandler* joiner : joiners_) simulation_->schedule(simulation_->now(), *joiner, 0);
  }
  simulation_ = nullptr;
  if (!has_object_) frame().destroy();
  if (failure) std::rethrow_exception(failure);
}

Process::~Process() {
  if (promise_ == nullptr) return;
  promise_->has_object_ = false;
  if (promise_->simulation_ == nullptr) promise_->frame().destroy();
}

void Process::await_suspend(std::coroutine_handle<ProcessPromise> waiter) const {
  if (promise_->simulation_ == nullptr) waiter.promise().simulation_->spawn(*this);
  promise_->joiners_.push_back(&waiter.promise());
}

void Simulation::spawn(const Process& process) {
  ProcessPromise& promise = *process.promise_;
  if (promise.simulation_ != nullptr || process.done()) {
    throw std::logic_error("a process is spawned once");
  }
  schedule(now_, promise, 0);
  promise.simulation_ = this;
  promise.index_ = processes_.size();
  processes_.push_back(&promise);
}

Simulation::~Simulation() {
  // Destroying a frame may drop the Process objects of others, but never adds a process.
  while (!processes_.empty()) {
    ProcessPromise* promise = processes_.back();
    processes_.pop_back();
    promise->simulation_ = nullptr;
    if (!promise->has_object_) promise->frame().destroy();
  }
}

}  // namespace kvreplay
