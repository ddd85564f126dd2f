#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "devices/device.hpp"

namespace kvreplay {

/// What decode steps request from a device and from one processor: a sequence of operations, each
/// of which begins when the previous one is over. A submission is over at once; its commands are in
/// progress until they complete, whatever follows. So only waits and computations take time, and
/// the order of operations is the order of dependencies.
///
/// A plain value: it knows no policy, no layout and no clock, and can be written to a file and run
/// elsewhere. Commands and batches are numbered in the order of submission, over all steps.
class Schedule {
 public:
  enum class Kind : std::uint8_t { kStep, kSubmit, kWait, kCompute };
  struct Operation {
    Kind kind = Kind::kStep;
    std::int64_t value = 0;  ///< kSubmit, kWait: the batch; kCompute: nanoseconds
    friend bool operator==(const Operation&, const Operation&) = default;
  };

  Schedule() = default;
  /// `limits`: those of the device that the commands were made for. `made_from`: their origin, in
  /// one line.
  Schedule(const DeviceLimits& limits, std::string made_from);

  /// The operations that follow belong to a new step. No operation comes before the first step.
  void begin_step();
  /// Submits at least one command, all together; returns the number of the batch.
  std::int64_t submit(std::span<const IoCommand> commands);
  /// Waits until all commands of a submitted batch have completed.
  void wait(std::int64_t batch);
  void compute(std::int64_t duration_ns);

  [[nodiscard]] const DeviceLimits& limits() const { return limits_; }
  [[nodiscard]] const std::string& made_from() const { return made_from_; }
  [[nodiscard]] std::span<const Operation> operations() const { return operations_; }
  [[nodiscard]] std::size_t steps() const { return step_begin_.size(); }
  /// The step's operations, without the kStep that opens it.
  [[nodiscard]] std::span<const Operation> step(std::size_t index) const;
  [[nodiscard]] std::size_t batches() const { return batch_begin_.size() - 1; }
  [[nodiscard]] std::span<const IoCommand> commands() const { return commands_; }
  /// The batch's commands are commands()[first_command(batch), first_command(batch + 1)).
  [[nodiscard]] std::size_t first_command(std::int64_t batch) const {
    return batch_begin_[static_cast<std::size_t>(batch)];
  }
  [[nodiscard]] std::span<const IoCommand> batch(std::int64_t batch) const;

  [[nodiscard]] bool writes() const;
  /// All commands lie below this offset.
  [[nodiscard]] std::uint64_t space_bytes() const;
  /// The sum over all computations.
  [[nodiscard]] std::int64_t compute_ns() const;

  /// The first `count` steps.
  [[nodiscard]] Schedule first_steps(std::size_t count) const;
  /// The same commands on a smaller device of `bytes`: an offset is taken modulo its whole
  /// mebibytes, and a command that would then pass the end is moved before it. Commands of a batch
  /// may then overlap.
  [[nodiscard]] Schedule wrapped(std::uint64_t bytes) const;

  /// The schedule in the text format of docs/real-devices.md.
  [[nodiscard]] std::string text() const;
  /// Parses such a text; errors call it `name`. Throws UserError with the line that is wrong.
  [[nodiscard]] static Schedule parse(const std::string& text, const std::string& name);
  [[nodiscard]] static Schedule read(const std::string& file);
  /// The first line of a file of this format.
  static constexpr const char* kFirstLine = "kvreplay schedule 1";

 private:
  DeviceLimits limits_;
  std::string made_from_;
  std::vector<Operation> operations_;
  std::vector<std::size_t> step_begin_;      ///< indices of the kStep in operations_
  std::vector<std::size_t> batch_begin_{0};  ///< [batches + 1], indices into commands_
  std::vector<IoCommand> commands_;
};

}  // namespace kvreplay
