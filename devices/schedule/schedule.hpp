#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "devices/device.hpp"

namespace kvreplay {

/// What decode steps ask of a device and of one processor: a line of operations, each of which
/// begins when the one before it is over. A submission is over at once; its commands are under way
/// until they complete, whatever follows. So waits and computations are all that takes time, and
/// the order of the line is the order of dependencies.
///
/// A plain value: it knows no policy, no layout and no clock, and can be written to a file and run
/// elsewhere. Command and batch numbers are those of their submission, over all steps.
class Schedule {
 public:
  enum class Kind : std::uint8_t { kStep, kSubmit, kWait, kCompute };
  struct Operation {
    Kind kind = Kind::kStep;
    std::int64_t value = 0;  ///< kSubmit, kWait: the batch; kCompute: nanoseconds
    friend bool operator==(const Operation&, const Operation&) = default;
  };

  Schedule() = default;
  /// `limits`: of the device that the commands were made for. `made_from`: where they come from, in
  /// a line.
  Schedule(const DeviceLimits& limits, std::string made_from);

  /// The operations that follow belong to a new step. There is none before the first step.
  void begin_step();
  /// Submits at least one command, together; returns the number of the batch.
  std::int64_t submit(std::span<const IoCommand> commands);
  /// Until all commands of a batch, which has been submitted, have completed.
  void wait(std::int64_t batch);
  void compute(std::int64_t duration_ns);

  [[nodiscard]] const DeviceLimits& limits() const { return limits_; }
  [[nodiscard]] const std::string& made_from() const { return made_from_; }
  [[nodiscard]] std::span<const Operation> operations() const { return operations_; }
  [[nodiscard]] std::size_t steps() const { return step_begin_.size(); }
  /// Without the kStep that opens it.
  [[nodiscard]] std::span<const Operation> step(std::size_t index) const;
  [[nodiscard]] std::size_t batches() const { return batch_begin_.size() - 1; }
  [[nodiscard]] std::span<const IoCommand> commands() const { return commands_; }
  /// Of the batch: commands()[first_command(batch), first_command(batch + 1)).
  [[nodiscard]] std::size_t first_command(std::int64_t batch) const {
    return batch_begin_[static_cast<std::size_t>(batch)];
  }
  [[nodiscard]] std::span<const IoCommand> batch(std::int64_t batch) const;

  [[nodiscard]] bool writes() const;
  /// All commands lie below it.
  [[nodiscard]] std::uint64_t space_bytes() const;
  /// Of all computations.
  [[nodiscard]] std::int64_t compute_ns() const;

  /// The first `count` steps.
  [[nodiscard]] Schedule first_steps(std::size_t count) const;
  /// The same commands on a smaller device of `bytes`: an offset is taken modulo its whole
  /// mebibytes, and a command that would then pass the end lies before it. Commands of a batch may
  /// come to lie upon each other.
  [[nodiscard]] Schedule wrapped(std::uint64_t bytes) const;

  /// In the text format of docs/real-devices.md.
  [[nodiscard]] std::string text() const;
  /// Of such a text; `name` is what errors call it. UserError with the line that is wrong.
  [[nodiscard]] static Schedule parse(const std::string& text, const std::string& name);
  [[nodiscard]] static Schedule read(const std::string& file);
  /// What the first line of a file of this format is.
  static constexpr const char* kFirstLine = "kvreplay schedule 1";

 private:
  DeviceLimits limits_;
  std::string made_from_;
  std::vector<Operation> operations_;
  std::vector<std::size_t> step_begin_;      ///< of operations_: the kStep
  std::vector<std::size_t> batch_begin_{0};  ///< [batches + 1], of commands_
  std::vector<IoCommand> commands_;
};

}  // namespace kvreplay
