#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/engine/process.hpp"
#include "base/engine/server.hpp"
#include "base/engine/simulation.hpp"
#include "devices/device.hpp"
#include "sim/time/machine/machine.hpp"
#include "sim/time/machine/observer.hpp"
#include "sim/time/machine/step_work.hpp"
#include "sim/time/power_limit.hpp"

namespace kvreplay {

/// A machine in virtual time: kernels take as long as the step's work says, and a modelled device
/// takes the commands.
class VirtualMachine final : public Machine {
 public:
  /// `work` outlives the machine. Its number of layers is fixed; everything else may change from
  /// step to step.
  VirtualMachine(Simulation& simulation, Device& device, const StepWork& work);
  VirtualMachine(const VirtualMachine&) = delete;
  VirtualMachine& operator=(const VirtualMachine&) = delete;

  /// Runs a step as a process of its own. Call it from a process on the machine's simulation:
  ///   co_await machine.run(pipeline.step(machine));
  /// Starting another step meanwhile is a std::logic_error.
  Process run(StepTask step);

  /// From now on `observer` sees all that happens. It must outlive the machine.
  void observe(MachineObserver& observer) { observer_ = &observer; }
  /// From now on kernels take as long as `limit` lets them. It must outlive the machine.
  void limit_power(PowerLimit& limit) { power_limit_ = &limit; }

  [[nodiscard]] std::size_t layers() const override { return work_.layers.size(); }
  Wait compute(Kernels kernels, std::size_t layer) override;
  void start(TransferKind kind, std::size_t layer) override;
  Wait wait(TransferKind kind, std::size_t layer) override;

  /// Compute time since the machine was constructed.
  [[nodiscard]] SimTime computed_ns() const { return server_.busy(); }
  /// What of computed_ns() is due to a power limit, or to handing computations over.
  [[nodiscard]] SimTime slowed_ns() const { return slowed_ns_; }
  /// Time with at least one command in progress, until now.
  [[nodiscard]] SimTime io_busy_ns() const;
  [[nodiscard]] std::int64_t commands_started() const { return commands_started_; }
  /// Of each completed read or write, in order of completion: time since its transfer was started.
  [[nodiscard]] const std::vector<SimTime>& command_ns(bool writes) const {
    return command_ns_[writes ? 1 : 0];
  }
  void forget_command_times() {
    for (std::vector<SimTime>& times : command_ns_) times.clear();
  }

 private:
  /// Work in the processor or on the device, with `left` parts left.
  struct Work : Waitable, EventHandler {
    [[nodiscard]] bool is_over() final { return left == 0; }
    void resume_when_over(WaitingStep& step) final;
    /// One part is done.
    void count_down() {
      if (--left == 0 && waiter != nullptr) machine->resume(*std::exchange(waiter, nullptr));
    }

    VirtualMachine* machine = nullptr;
    std::size_t left = 0;
    WaitingStep* waiter = nullptr;
  };
  struct Computation final : Work {
    void on_event(std::uint64_t argument) override;
  };
  /// The parts are commands.
  struct Transfer final : Work {
    /// A command has completed, or the next one has been handed over.
    void on_event(std::uint64_t argument) override;
    TransferKind kind = TransferKind::kReads;
    std::size_t layer = 0;
    SimTime started = 0;
    std::vector<IoCommand> waiting{};  ///< where the processor takes time to hand them over
  };
  static constexpr std::uint64_t kCompleted = std::numeric_limits<std::uint64_t>::max();
  struct Nobody final : EventHandler {
    void on_event(std::uint64_t) override {}
  };
  class Run;

  [[nodiscard]] Transfer& transfer(TransferKind kind, std::size_t layer) {
    return transfers_[layer * kTransferKinds + static_cast<std::size_t>(kind)];
  }
  void resume(WaitingStep& step);
  /// What a transfer that starts now takes longer than on the device alone.
  [[nodiscard]] SimTime delay_ns(std::span<const IoCommand> commands) const;

  Simulation& simulation_;
  Device& device_;
  const StepWork& work_;
  Server server_;
  Computation computation_;
  Nobody nobody_;
  std::vector<Transfer> transfers_;  // by layer, then kind
  const StepTask* running_ = nullptr;
  EventHandler* joiner_ = nullptr;  // resumed when the running step has ended
  std::int64_t commands_started_ = 0;
  std::size_t commands_under_way_ = 0;
  std::array<std::vector<SimTime>, 2> command_ns_;  // of reads, of writes
  SimTime io_busy_ns_ = 0;                          // of the closed busy periods
  SimTime io_busy_since_ = 0;                       // start of the open one
  SimTime io_idle_since_ = 0;                       // end of the latest closed one
  SimTime beside_until_ = 0;  // end of the latest computation that began beside transfers
  MachineObserver* observer_ = nullptr;
  PowerLimit* power_limit_ = nullptr;
  SimTime slowed_ns_ = 0;
};

}  // namespace kvreplay
