#include "sim/time/pipeline/machine.hpp"

#include <cassert>
#include <stdexcept>
#include <utility>

#include "devices/schedule/schedule.hpp"

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
      writes_(layers),
      index_reads_(layers),
      cache_reads_(layers) {
  const auto name = [this](std::vector<Transfer>& transfers, TransferKind kind) {
    for (std::size_t layer = 0; layer < transfers.size(); ++layer) {
      transfers[layer].machine = this;
      transfers[layer].kind = kind;
      transfers[layer].layer = layer;
    }
  };
  name(reads_, TransferKind::kReads);
  name(writes_, TransferKind::kWrites);
  name(index_reads_, TransferKind::kIndexReads);
  name(cache_reads_, TransferKind::kCacheReads);
}

void Machine::Transfer::on_event(std::uint64_t /*argument*/) {
  if (--machine->commands_under_way_ == 0) {
    machine->io_busy_ns_ += machine->simulation_.now() - machine->io_busy_since_;
  }
  if (machine->observer_ != nullptr) {
    const SimTime now = machine->simulation_.now();
    machine->observer_->on_commands(machine->commands_under_way_, now);
    if (left == 1) machine->observer_->on_transfer_end(kind, layer, now);
  }
  if (--left > 0 || waiter == nullptr) return;
  std::exchange(waiter, nullptr)->on_event(0);
}

void Machine::Wait::await_suspend(std::coroutine_handle<ProcessPromise> waiter) {
  assert(transfer_.waiter == nullptr);
  transfer_.waiter = &waiter.promise();
}

void Machine::start(Transfer& transfer, std::span<const IoCommand> commands) {
  if (transfer.left != 0) throw std::logic_error("a transfer was started while under way");
  if (observer_ != nullptr) {
    observer_->on_transfer_begin(transfer.kind, transfer.layer, simulation_.now(), commands);
  }
  if (commands.empty()) return;
  if (recorded_ != nullptr) {
    check_one_branch();
    if (transfer.recorded_batch >= 0) {
      throw std::logic_error("a transfer was started again, but not waited for");
    }
    transfer.recorded_batch = recorded_->submit(commands);
  }
  if (commands_under_way_ == 0) io_busy_since_ = simulation_.now();
  commands_under_way_ += commands.size();
  commands_started_ += std::ssize(commands);
  transfer.left = commands.size();
  if (observer_ != nullptr) observer_->on_commands(commands_under_way_, simulation_.now());
  for (const IoCommand& command : commands) device_.submit(command, transfer, 0);
}

void Machine::record_compute(SimTime duration) {
  check_one_branch();
  recorded_->compute(duration);
}

void Machine::record_wait(Transfer& transfer) {
  check_one_branch();
  if (transfer.recorded_batch >= 0) recorded_->wait(transfer.recorded_batch);
  transfer.recorded_batch = -1;
}

void Machine::check_one_branch() const {
  bool awaits = processor_.free_at() > simulation_.now();
  for (const auto* transfers : {&reads_, &writes_, &index_reads_, &cache_reads_}) {
    for (const Transfer& transfer : *transfers) awaits |= transfer.waiter != nullptr;
  }
  if (awaits) throw std::logic_error("a pipeline with branches cannot be recorded as a schedule");
}

SimTime Machine::io_busy_ns() const {
  const SimTime open = commands_under_way_ == 0 ? 0 : simulation_.now() - io_busy_since_;
  return io_busy_ns_ + open;
}

}  // namespace kvreplay
