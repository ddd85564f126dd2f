#pragma once

#include <coroutine>
#include <cstdint>
#include <span>

#include "base/engine/process.hpp"
#include "devices/device.hpp"

namespace kvreplay {

/// When a batch went to the device, and when its last command completed.
struct IoTimes {
  SimTime submitted = 0;
  SimTime completed = 0;
  [[nodiscard]] SimTime elapsed() const { return completed - submitted; }
};

/// Awaitable: submits the commands at once, in order, and resumes when all have completed.
///
///   const IoTimes times = co_await IoBatch(simulation, device, commands);
///
/// The commands are read only at submission. An empty batch takes no time.
class IoBatch final : public EventHandler {
 public:
  IoBatch(Simulation& simulation, Device& device, std::span<const IoCommand> commands)
      : simulation_(simulation), device_(device), commands_(commands), left_(commands.size()) {}
  IoBatch(const IoBatch&) = delete;
  IoBatch& operator=(const IoBatch&) = delete;

  [[nodiscard]] bool await_ready() {
    times_ = {simulation_.now(), simulation_.now()};
    return commands_.empty();
  }
  void await_suspend(std::coroutine_handle<ProcessPromise> waiter) {
    waiter_ = &waiter.promise();
    for (const IoCommand& command : commands_) device_.submit(command, *this, 0);
  }
  [[nodiscard]] IoTimes await_resume() const { return times_; }

  void on_event(std::uint64_t /*argument*/) override {
    if (--left_ > 0) return;
    times_.completed = simulation_.now();
    waiter_->on_event(0);
  }

 private:
  Simulation& simulation_;
  Device& device_;
  std::span<const IoCommand> commands_;
  std::size_t left_;
  EventHandler* waiter_ = nullptr;
  IoTimes times_;
};

}  // namespace kvreplay
