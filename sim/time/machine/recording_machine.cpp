#include "sim/time/machine/recording_machine.hpp"

#include <stdexcept>
#include <utility>

namespace kvreplay {

RecordingMachine::RecordingMachine(Schedule& schedule, const StepWork& work)
    : schedule_(schedule), work_(work), batches_(work.layers.size() * kTransferKinds, kNone) {}

void RecordingMachine::run(StepTask step) {
  schedule_.begin_step();
  step.start();
  while (!step.done()) {
    if (last_.waiter == nullptr)
      throw std::logic_error("the pipeline waits for something that never happens");
    last_.open = false;
    std::exchange(last_.waiter, nullptr)->resume();
  }
  step.rethrow();
}

Wait RecordingMachine::compute(Kernels kernels, std::size_t layer) {
  check_one_branch();
  schedule_.compute(work_.duration_ns(kernels, layer));
  last_.open = true;
  return Wait(last_);
}

void RecordingMachine::start(TransferKind kind, std::size_t layer) {
  const std::span<const IoCommand> commands = work_.layers[layer].commands(kind);
  if (commands.empty()) return;
  check_one_branch();
  std::int64_t& started = batch(kind, layer);
  if (started != kNone) {
    throw std::logic_error("a transfer was started again without having been waited for");
  }
  started = schedule_.submit(commands);
}

Wait RecordingMachine::wait(TransferKind kind, std::size_t layer) {
  check_one_branch();
  std::int64_t& awaited = batch(kind, layer);
  if (awaited != kNone) {
    schedule_.wait(std::exchange(awaited, kNone));
    last_.open = true;
  }
  return Wait(last_);
}

void RecordingMachine::check_one_branch() const {
  if (!last_.open) return;
  throw std::logic_error("a pipeline with branches cannot be recorded as a schedule");
}

}  // namespace kvreplay
