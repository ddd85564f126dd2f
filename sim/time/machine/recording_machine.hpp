#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "devices/schedule/schedule.hpp"
#include "sim/time/machine/machine.hpp"
#include "sim/time/machine/step_work.hpp"

namespace kvreplay {

/// A machine without time and device: it records what a pipeline requests. Timed alone
/// (devices/schedule/time_schedule.hpp), the schedule takes the same time as the pipeline on a
/// VirtualMachine with the same work and device.
///
/// A schedule is one sequence of operations. Therefore it is a std::logic_error for a pipeline to
/// request something before it has waited for its computation, to request something while it waits
/// in another branch, or to start a transfer again without having waited for it.
class RecordingMachine final : public Machine {
 public:
  /// Both arguments outlive the machine. The number of layers of `work` is fixed; everything else
  /// may change from step to step.
  RecordingMachine(Schedule& schedule, const StepWork& work);

  /// Records one step. Throws what escapes from it.
  void run(StepTask step);

  [[nodiscard]] std::size_t layers() const override { return work_.layers.size(); }
  Wait compute(Kernels kernels, std::size_t layer) override;
  void start(TransferKind kind, std::size_t layer) override;
  Wait wait(TransferKind kind, std::size_t layer) override;

 private:
  static constexpr std::int64_t kNone = -1;

  /// The last recorded operation, which the step waits for. It is over when run() takes the next
  /// one, so that a second branch is noticed.
  struct Last final : Waitable {
    [[nodiscard]] bool is_over() override { return !open; }
    void resume_when_over(WaitingStep& step) override { waiter = &step; }

    bool open = false;
    WaitingStep* waiter = nullptr;
  };

  [[nodiscard]] std::int64_t& batch(TransferKind kind, std::size_t layer) {
    return batches_[layer * kTransferKinds + static_cast<std::size_t>(kind)];
  }
  void check_one_branch() const;

  Schedule& schedule_;
  const StepWork& work_;
  std::vector<std::int64_t> batches_;  // by layer, then kind: the batch to be waited for, or kNone
  Last last_;
};

}  // namespace kvreplay
