#include "devices/schedule/time_schedule.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/engine/process.hpp"
#include "base/engine/server.hpp"
#include "base/error.hpp"

namespace kvreplay {
namespace {

class ModelRun final : public EventHandler {
 public:
  ModelRun(const Schedule& schedule, const DeviceSpec& device)
      : schedule_(schedule),
        device_(device.make(simulation_)),
        processor_(simulation_),
        left_(schedule.batches()),
        batch_of_(schedule.commands().size()) {
    measurement_.requests.resize(schedule.commands().size());
    check_limits(device.name);
  }

  ScheduleMeasurement run() && {
    const Process process = all_steps();
    simulation_.spawn(process);
    simulation_.run();
    if (!process.done())
      throw std::logic_error("the schedule waits for something that never happens");
    return std::move(measurement_);
  }

  /// Command `argument` has completed.
  void on_event(std::uint64_t argument) override {
    measurement_.requests[argument].completed_ns = simulation_.now();
    if (--under_way_ == 0) closed_busy_ns_ += simulation_.now() - busy_since_;
    const std::int64_t batch = batch_of_[argument];
    if (--left_[static_cast<std::size_t>(batch)] > 0 || batch != awaited_) return;
    awaited_ = -1;
    waiter_->on_event(0);
  }

 private:
  class Wait {
   public:
    Wait(ModelRun& run, std::int64_t batch) : run_(run), batch_(batch) {}
    [[nodiscard]] bool await_ready() const {
      return run_.left_[static_cast<std::size_t>(batch_)] == 0;
    }
    void await_suspend(std::coroutine_handle<ProcessPromise> waiter) {
      run_.awaited_ = batch_;
      run_.waiter_ = &waiter.promise();
    }
    void await_resume() const {}

   private:
    ModelRun& run_;
    std::int64_t batch_;
  };

  void check_limits(const std::string& name) const {
    const DeviceLimits limits = device_->limits();
    for (const IoCommand& command : schedule_.commands()) {
      if (command.offset % limits.logical_block_bytes == 0 &&
          command.bytes % limits.logical_block_bytes == 0 &&
          command.bytes <= limits.max_transfer_bytes) {
        continue;
      }
      throw UserError({name, ""},
                      "does not take a command of " + std::to_string(command.bytes) +
                          " bytes at offset " + std::to_string(command.offset),
                      "multiples of " + std::to_string(limits.logical_block_bytes) + ", at most " +
                          std::to_string(limits.max_transfer_bytes) + " bytes");
    }
  }

  Process all_steps() {
    for (std::size_t step = 0; step < schedule_.steps(); ++step) {
      StepMeasurement& result = measurement_.steps.emplace_back();
      const SimTime begin = simulation_.now();
      const SimTime computed_before = processor_.busy();
      const SimTime busy_before = busy_io_ns();
      // A separate process, as a pipeline's step is: events at the same time keep their order.
      co_await one_step(step, result);
      result.latency_ns = simulation_.now() - begin;
      result.compute_ns = processor_.busy() - computed_before;
      result.busy_io_ns = busy_io_ns() - busy_before;
    }
  }

  Process one_step(std::size_t step, StepMeasurement& result) {
    for (const auto& [kind, value] : schedule_.step(step)) {
      if (kind == Schedule::Kind::kSubmit) {
        submit(value, result);
      } else if (kind == Schedule::Kind::kWait) {
        co_await Wait(*this, value);
      } else if (kind == Schedule::Kind::kCompute) {
        co_await processor_.use(value);
      }
    }
  }

  void submit(std::int64_t batch, StepMeasurement& result) {
    const std::span<const IoCommand> commands = schedule_.batch(batch);
    if (under_way_ == 0) busy_since_ = simulation_.now();
    under_way_ += commands.size();
    left_[static_cast<std::size_t>(batch)] = commands.size();
    std::size_t number = schedule_.first_command(batch);
    for (const IoCommand& command : commands) {
      result.count(command);
      batch_of_[number] = batch;
      measurement_.requests[number].requested_ns = simulation_.now();
      device_->submit(command, *this, number++);
    }
  }

  [[nodiscard]] SimTime busy_io_ns() const {
    return closed_busy_ns_ + (under_way_ == 0 ? 0 : simulation_.now() - busy_since_);
  }

  const Schedule& schedule_;
  Simulation simulation_;
  std::unique_ptr<Device> device_;
  Server processor_;
  std::vector<std::size_t> left_;       ///< by batch: number of commands not completed
  std::vector<std::int64_t> batch_of_;  ///< by command
  std::int64_t awaited_ = -1;           ///< batch
  EventHandler* waiter_ = nullptr;
  std::size_t under_way_ = 0;
  SimTime closed_busy_ns_ = 0;  ///< sum over the closed busy periods
  SimTime busy_since_ = 0;      ///< begin of the open one
  ScheduleMeasurement measurement_;
};

}  // namespace

ScheduleMeasurement time_schedule(const Schedule& schedule, const DeviceSpec& device) {
  return ModelRun(schedule, device).run();
}

}  // namespace kvreplay
