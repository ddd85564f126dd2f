#pragma once

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/engine/process.hpp"
#include "base/engine/server.hpp"
#include "base/engine/simulation.hpp"
#include "devices/device.hpp"
#include "sim/time/pipeline/observer.hpp"

namespace kvreplay {

class Schedule;

/// What one layer of one step asks of the machine, for the whole batch.
struct LayerWork {
  SimTime project_ns = 0;  ///< Q, K and V projections
  SimTime query_ns = 0;    ///< of project_ns, the Q projection
  SimTime score_ns = 0;    ///< scoring and selection
  SimTime attend_ns = 0;   ///< attention, output projection, feed-forward
  std::vector<IoCommand> reads;
  std::vector<IoCommand> writes;
  std::vector<IoCommand> index_reads;  ///< representatives; none unless Pipeline::index_on_flash()
  std::vector<IoCommand> cache_reads;  ///< cached groups; none unless Pipeline::pages_cache()
};

/// One decoded token for every sequence of the batch.
struct StepWork {
  std::vector<LayerWork> layers;
  SimTime head_ns = 0;  ///< LM head

  [[nodiscard]] SimTime compute_ns() const;
};

/// What a pipeline drives: one processor, which computes one thing at a time, and one device. The
/// reads and the writes of a layer, its representatives' and its cached groups' reads, are each one
/// transfer, which can be started and waited for.
class Machine {
 public:
  Machine(Simulation& simulation, Device& device, std::size_t layers);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// The step whose work the transfers below refer to; outlives the step's end.
  void set_step(const StepWork& step) { step_ = &step; }
  [[nodiscard]] const StepWork& step() const { return *step_; }
  [[nodiscard]] std::size_t layers() const { return reads_.size(); }
  [[nodiscard]] const LayerWork& layer(std::size_t index) const { return step_->layers[index]; }

  /// From now on writes down what the pipeline asks for; `schedule` outlives the machine. A
  /// schedule is one line of operations, so a pipeline that asks for something while it waits for
  /// something else, in another branch, is a std::logic_error; so is a transfer that it starts
  /// again without having waited for it.
  void record(Schedule& schedule) { recorded_ = &schedule; }

  /// From now on `observer` sees all that happens; it outlives the machine.
  void observe(MachineObserver& observer) { observer_ = &observer; }

  /// Awaitable: takes the processor for so long, after what was asked for earlier.
  [[nodiscard]] Server::Use compute(SimTime duration, const ComputeName& name = {}) {
    if (recorded_ != nullptr) record_compute(duration);
    if (observer_ != nullptr) {
      observer_->on_compute(name, std::max(simulation_.now(), processor_.free_at()), duration);
    }
    return processor_.use(duration);
  }

  /// Starting a transfer of a layer while its last one is under way is a std::logic_error.
  void start_reads(std::size_t layer) { start(reads_[layer], step_->layers[layer].reads); }
  void start_writes(std::size_t layer) { start(writes_[layer], step_->layers[layer].writes); }
  void start_index_reads(std::size_t layer) {
    start(index_reads_[layer], step_->layers[layer].index_reads);
  }
  void start_cache_reads(std::size_t layer) {
    start(cache_reads_[layer], step_->layers[layer].cache_reads);
  }

  class Wait;
  /// Awaitable: resumes when the reads of the layer have completed, at once when none is under way.
  [[nodiscard]] Wait reads(std::size_t layer);
  /// The same of its writes: of the step before, until start_writes() was called in this one.
  [[nodiscard]] Wait writes(std::size_t layer);
  [[nodiscard]] Wait index_reads(std::size_t layer);
  [[nodiscard]] Wait cache_reads(std::size_t layer);

  /// Since the machine was made.
  [[nodiscard]] SimTime computed_ns() const { return processor_.busy(); }
  /// Time with at least one command under way, until now.
  [[nodiscard]] SimTime io_busy_ns() const;
  [[nodiscard]] std::int64_t commands_started() const { return commands_started_; }

 private:
  /// A batch of commands on its way.
  struct Transfer final : EventHandler {
    void on_event(std::uint64_t argument) override;

    Machine* machine = nullptr;
    TransferKind kind = TransferKind::kReads;
    std::size_t layer = 0;
    std::size_t left = 0;              ///< commands
    EventHandler* waiter = nullptr;    ///< one process at most waits for a transfer
    std::int64_t recorded_batch = -1;  ///< of the schedule, until it is waited for
  };

  void start(Transfer& transfer, std::span<const IoCommand> commands);
  [[nodiscard]] Wait wait_for(Transfer& transfer);
  void record_compute(SimTime duration);
  void record_wait(Transfer& transfer);
  /// Nothing that is recorded is awaited now.
  void check_one_branch() const;

  Simulation& simulation_;
  Device& device_;
  Server processor_;
  const StepWork* step_ = nullptr;
  std::vector<Transfer> reads_;        // by layer
  std::vector<Transfer> writes_;       // by layer
  std::vector<Transfer> index_reads_;  // by layer
  std::vector<Transfer> cache_reads_;  // by layer
  std::int64_t commands_started_ = 0;
  std::size_t commands_under_way_ = 0;
  SimTime io_busy_ns_ = 0;     // of the closed busy periods
  SimTime io_busy_since_ = 0;  // begin of the open one
  Schedule* recorded_ = nullptr;
  MachineObserver* observer_ = nullptr;
};

class Machine::Wait {
 public:
  explicit Wait(Transfer& transfer) : transfer_(transfer) {}
  [[nodiscard]] bool await_ready() const { return transfer_.left == 0; }
  void await_suspend(std::coroutine_handle<ProcessPromise> waiter);
  void await_resume() const {}

 private:
  Transfer& transfer_;
};

inline Machine::Wait Machine::wait_for(Transfer& transfer) {
  if (recorded_ != nullptr) record_wait(transfer);
  return Wait(transfer);
}
inline Machine::Wait Machine::reads(std::size_t layer) {
  return wait_for(reads_[layer]);
}
inline Machine::Wait Machine::writes(std::size_t layer) {
  return wait_for(writes_[layer]);
}
inline Machine::Wait Machine::index_reads(std::size_t layer) {
  return wait_for(index_reads_[layer]);
}
inline Machine::Wait Machine::cache_reads(std::size_t layer) {
  return wait_for(cache_reads_[layer]);
}

}  // namespace kvreplay
