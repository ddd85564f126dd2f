#include "sim/time/machine/virtual_machine.hpp"

#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <utility>

namespace kvreplay {

VirtualMachine::VirtualMachine(Simulation& simulation, Device& device, const StepWork& work)
    : simulation_(simulation),
      device_(device),
      work_(work),
      server_(simulation),
      transfers_(work.layers.size() * kTransferKinds) {
  computation_.machine = this;
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    transfers_[i].machine = this;
    transfers_[i].kind = static_cast<TransferKind>(i % kTransferKinds);
    transfers_[i].layer = i / kTransferKinds;
  }
}

/// Awaitable: runs a step to its end.
class VirtualMachine::Run {
 public:
  Run(VirtualMachine& machine, StepTask& step) : machine_(machine), step_(step) {}

  [[nodiscard]] bool await_ready() {
    if (machine_.running_ != nullptr) throw std::logic_error("two steps drive one machine");
    step_.start();
    return step_.done();
  }
  void await_suspend(std::coroutine_handle<ProcessPromise> waiter) {
    machine_.running_ = &step_;
    machine_.joiner_ = &waiter.promise();
  }
  void await_resume() const { step_.rethrow(); }

 private:
  VirtualMachine& machine_;
  StepTask& step_;
};

Process VirtualMachine::run(StepTask step) {
  co_await Run(*this, step);
}

void VirtualMachine::resume(WaitingStep& step) {
  step.resume();
  if (running_ == nullptr || !running_->done()) return;
  running_ = nullptr;
  std::exchange(joiner_, nullptr)->on_event(0);
}

void VirtualMachine::Work::resume_when_over(WaitingStep& step) {
  assert(waiter == nullptr);
  waiter = &step;
}

void VirtualMachine::Computation::on_event(std::uint64_t /*argument*/) {
  count_down();
}

void VirtualMachine::Transfer::on_event(std::uint64_t argument) {
  if (argument != kCompleted) {
    machine->device_.submit(waiting[argument], *this, kCompleted);
    return;
  }
  const SimTime now = machine->simulation_.now();
  machine->command_ns_[kind == TransferKind::kWrites ? 1 : 0].push_back(now - started);
  if (--machine->commands_under_way_ == 0) {
    machine->io_busy_ns_ += now - machine->io_busy_since_;
    machine->io_idle_since_ = now;
  }
  if (machine->observer_ != nullptr) {
    machine->observer_->on_commands(machine->commands_under_way_, now);
    if (left == 1) machine->observer_->on_transfer_end(kind, layer, now);
  }
  count_down();
}

Wait VirtualMachine::compute(Kernels kernels, std::size_t layer) {
  SimTime duration = work_.duration_ns(kernels, layer);
  const SimTime begin = std::max(simulation_.now(), server_.free_at());
  if (power_limit_ != nullptr) {
    const SimTime limited = power_limit_->compute(begin, duration);
    slowed_ns_ += limited - duration;
    duration = limited;
  }
  if (work_.measured != nullptr && commands_under_way_ > 0) {
    const SimTime hand_over = work_.measured->hand_over_time_ns(begin - beside_until_);
    duration += hand_over;
    slowed_ns_ += hand_over;
    beside_until_ = begin + duration;
  }
  if (observer_ != nullptr) observer_->on_compute(kernels, layer, begin, duration);
  ++computation_.left;
  server_.use(duration, computation_, 0);
  return Wait(computation_);
}

void VirtualMachine::start(TransferKind kind, std::size_t layer) {
  Transfer& started = transfer(kind, layer);
  const std::span<const IoCommand> commands = work_.layers[layer].commands(kind);
  if (started.left != 0) throw std::logic_error("a transfer was started while in progress");
  if (observer_ != nullptr) {
    observer_->on_transfer_begin(kind, layer, simulation_.now(), commands);
  }
  if (commands.empty()) return;
  const SimTime delay = delay_ns(commands);
  if (commands_under_way_ == 0) io_busy_since_ = simulation_.now();
  commands_under_way_ += commands.size();
  commands_started_ += std::ssize(commands);
  started.left = commands.size();
  started.started = simulation_.now();
  if (observer_ != nullptr) observer_->on_commands(commands_under_way_, simulation_.now());
  const SimTime submit = work_.layers[layer].submit_ns[static_cast<std::size_t>(kind)];
  if (submit == 0 && delay == 0) {
    for (const IoCommand& command : commands) device_.submit(command, started, kCompleted);
    return;
  }
  const SimTime begin = std::max(simulation_.now(), server_.free_at());
  server_.use(submit, nobody_, 0);
  started.waiting.assign(commands.begin(), commands.end());
  // A device does not wait for the processor to return from handing over a command.
  const SimTime others = std::max<SimTime>(submit - work_.submit_first_ns, 0);
  const auto last = std::max<SimTime>(std::ssize(commands) - 1, 1);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const SimTime later = others * static_cast<SimTime>(i) / last;
    simulation_.schedule(begin + delay + later, started, i);
  }
}

SimTime VirtualMachine::delay_ns(std::span<const IoCommand> commands) const {
  if (work_.measured == nullptr) return 0;
  const SimTime now = simulation_.now();
  std::int64_t bytes = 0;
  for (const IoCommand& command : commands) bytes += command.bytes;
  return work_.measured->transfer_delay_ns(commands_under_way_ == 0 ? now - io_idle_since_ : 0,
                                           std::ssize(commands), bytes, commands.front().write,
                                           server_.free_at() > now);
}

Wait VirtualMachine::wait(TransferKind kind, std::size_t layer) {
  return Wait(transfer(kind, layer));
}

SimTime VirtualMachine::io_busy_ns() const {
  const SimTime open = commands_under_way_ == 0 ? 0 : simulation_.now() - io_busy_since_;
  return io_busy_ns_ + open;
}

}  // namespace kvreplay
