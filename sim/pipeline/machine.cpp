#include "sim/pipeline/machine.hpp"

#include <cassert>
#include <stdexcept>
#include <utility>

namespace kvreplay {

SimTime StepWork::compute_ns() const {
  SimTime sum = head_ns;
  for (const LayerWork& layer : layers) sum += layer.project_ns + layer.score_ns + layer.attend_ns;
  return sum;
}

Machine::Machine(Simulation& simulation, Device& device, std::size_t layers)
    : simulation_(simulation),
      device_(device),
      processor_(simulation),
      reads_(layers),
      writes_(layers) {
  for (Transfer& transfer : reads_) transfer.machine_ = this;
  for (Transfer& transfer : writes_) transfer.machine_ = this;
}

void Machine::Transfer::on_event(std::uint64_t /*argument*/) {
  if (--machine_->commands_under_way_ == 0) {
    machine_->io_busy_ns_ += machine_->simulation_.now() - machine_->io_busy_since_;
  }
  if (--left_ > 0 || waiter_ == nullptr) return;
  std::exchange(waiter_, nullptr)->on_event(0);
}

void Machine::Transfer::await_suspend(std::coroutine_handle<ProcessPromise> waiter) {
  assert(waiter_ == nullptr);
  waiter_ = &waiter.promise();
}

void Machine::start(Transfer& transfer, std::span<const IoCommand> commands) {
  if (transfer.left_ != 0) throw std::logic_error("a transfer was started while under way");
  if (commands.empty()) return;
  if (commands_under_way_ == 0) io_busy_since_ = simulation_.now();
  commands_under_way_ += commands.size();
  commands_started_ += std::ssize(commands);
  transfer.left_ = commands.size();
  for (const IoCommand& command : commands) device_.submit(command, transfer, 0);
}

SimTime Machine::io_busy_ns() const {
  const SimTime open = commands_under_way_ == 0 ? 0 : simulation_.now() - io_busy_since_;
  return io_busy_ns_ + open;
}

}  // namespace kvreplay
