#include "devices/real/run_schedule.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

namespace kvreplay {
namespace {

/// Last part of a wait for a point in time, spent awake, because a sleep ends a few tens of
/// microseconds late.
constexpr std::int64_t kAwakeNs = 100'000;
/// Largest delay before an interrupt is noticed.
constexpr std::int64_t kLongestSleepNs = 50'000'000;
/// Largest delay before the end of a computation on the other thread is noticed.
constexpr std::int64_t kNoticeNs = 20'000;

void sleep_until(std::int64_t until_ns) {
  const timespec time{until_ns / 1'000'000'000, static_cast<long>(until_ns % 1'000'000'000)};
  ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);  // a signal may end it
}

/// Makes this thread's sleeps end on time: by default the kernel adds up to 50 us to save power.
class ExactTimers {
 public:
  ExactTimers() : before_(::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)) {
    ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  }
  ~ExactTimers() {
    if (before_ > 0) ::prctl(PR_SET_TIMERSLACK, before_, 0, 0, 0);
  }
  ExactTimers(const ExactTimers&) = delete;
  ExactTimers& operator=(const ExactTimers&) = delete;

 private:
  int before_;
};

/// A thread that computes, one job at a time.
class Processor {
 public:
  explicit Processor(const std::function<void(std::int64_t)>& compute)
      : thread_([this, &compute](const std::stop_token& stop) { serve(stop, compute); }) {}

  void start(std::int64_t duration_ns) {
    {
      const std::lock_guard lock(mutex_);
      duration_ns_ = duration_ns;
      busy_ = true;
    }
    work_.notify_one();
  }
  [[nodiscard]] bool busy() const { return busy_; }

 private:
  void serve(const std::stop_token& stop, const std::function<void(std::int64_t)>& compute) {
    std::unique_lock lock(mutex_);
    while (work_.wait(lock, stop, [this] { return busy_.load(); })) {
      compute(duration_ns_);
      busy_ = false;
    }
  }

  std::mutex mutex_;
  std::condition_variable_any work_;
  std::int64_t duration_ns_ = 0;
  std::atomic<bool> busy_{false};
  std::jthread thread_;  // last, because it uses the other members
};

class Runner {
 public:
  Runner(IoEngine& engine, const Schedule& schedule, const RunScheduleOptions& options)
      : engine_(engine), schedule_(schedule), options_(options), left_(schedule.batches()) {
    measurement_.steps.reserve(schedule.steps());
    measurement_.requests.resize(schedule.commands().size());
    flights_.resize(options.depth);
    for (std::uint32_t slot = options.depth; slot > 0; --slot) idle_.push_back(slot - 1);
    if (options.compute) processor_.emplace(options.compute);
  }

  ScheduleMeasurement run() && {
    begin_ns_ = monotonic_ns();
    for (std::size_t step = 0; step < schedule_.steps() && !ended(); ++step) {
      if (!run_step(step)) break;
      if (options_.on_step) options_.on_step(measurement_);
    }
    while (under_way() && !ended()) poll(IoEngine::kForever);
    submitted_ = next_;  // after an early end, the rest is never submitted
    while (outstanding() > 0) poll(IoEngine::kForever);
    return std::move(measurement_);
  }

 private:
  struct Flight {
    std::size_t command = 0;
    std::int64_t batch = 0;
  };

  /// Whether the schedule reached its end.
  bool run_step(std::size_t step) {
    StepMeasurement result;
    const std::int64_t begin = monotonic_ns();
    const std::int64_t busy_before = busy_io_ns(begin);
    for (const auto& [kind, value] : schedule_.step(step)) {
      switch (kind) {
        case Schedule::Kind::kStep:
          break;
        case Schedule::Kind::kSubmit:
          for (const IoCommand& command : schedule_.batch(value)) result.count(command);
          submit(value);
          break;
        case Schedule::Kind::kWait:
          while (left_[static_cast<std::size_t>(value)] > 0 && !ended()) poll(IoEngine::kForever);
          break;
        case Schedule::Kind::kCompute:
          result.compute_ns += compute(value);
          break;
      }
      if (ended()) return false;
    }
    const std::int64_t end = monotonic_ns();
    result.latency_ns = end - begin;
    result.busy_io_ns = busy_io_ns(end) - busy_before;
    measurement_.steps.push_back(result);
    return true;
  }

  void submit(std::int64_t batch) {
    const std::int64_t now = monotonic_ns();
    if (!under_way()) busy_since_ns_ = now;
    const std::size_t end = schedule_.first_command(batch + 1);
    left_[static_cast<std::size_t>(batch)] = end - submitted_;
    for (; submitted_ < end; ++submitted_) {
      measurement_.requests[submitted_].requested_ns = now - begin_ns_;
    }
    fill_queue();
  }

  void fill_queue() {
    while (next_ < submitted_ && !idle_.empty() && !measurement_.failure) {
      while (schedule_.first_command(next_batch_ + 1) <= next_) ++next_batch_;
      const std::uint32_t slot = idle_.back();
      idle_.pop_back();
      flights_[slot] = {next_, next_batch_};
      const IoCommand& command = schedule_.commands()[next_];
      engine_.start(slot, {command, memory_of(slot, command.bytes)});
      ++next_;
    }
  }

  /// In turn, memory is used again while an older request that is late still has it: what a
  /// measurement reads and writes does not count.
  std::uint64_t memory_of(std::uint32_t slot, std::uint32_t bytes) {
    if (options_.turn_bytes == 0) {
      return std::uint64_t{slot} * schedule_.limits().max_transfer_bytes;
    }
    constexpr std::uint64_t kUnit = 4096;
    if (turn_ + bytes > options_.turn_bytes) turn_ = 0;
    const std::uint64_t offset = turn_;
    turn_ += (bytes + kUnit - 1) / kUnit * kUnit;
    return offset;
  }

  /// Waits for a completion until the given time, and takes those that have arrived.
  void poll(std::int64_t until_ns) {
    results_.clear();
    engine_.wait(until_ns, results_);
    for (const IoResult& result : results_) {
      const auto [command, batch] = flights_[result.slot];
      idle_.push_back(result.slot);
      const auto failure = result.failure(schedule_.commands()[command]);
      if (failure && !measurement_.failure) measurement_.failure = failure;
      if (failure) continue;
      measurement_.requests[command].completed_ns = result.completed_ns - begin_ns_;
      --left_[static_cast<std::size_t>(batch)];
      ++completed_;
      if (!under_way()) closed_busy_ns_ += result.completed_ns - busy_since_ns_;
    }
    fill_queue();
  }

  /// Returns the time that it took.
  std::int64_t compute(std::int64_t duration_ns) {
    const std::int64_t begin = monotonic_ns();
    if (duration_ns == 0) return 0;
    if (processor_) {
      processor_->start(duration_ns);
      while (processor_->busy()) pass_time(monotonic_ns() + kNoticeNs);
    } else {
      const std::int64_t until = begin + duration_ns;
      for (std::int64_t now = begin; now < until && !ended(); now = monotonic_ns()) {
        if (until - now > kAwakeNs) {
          pass_time(std::min(until - kAwakeNs, now + kLongestSleepNs));
        } else if (outstanding() > 0) {
          poll(now);
        }
      }
    }
    return monotonic_ns() - begin;
  }

  /// Takes completions, or sleeps, until the given time.
  void pass_time(std::int64_t until_ns) {
    if (outstanding() > 0) {
      poll(until_ns);
    } else {
      sleep_until(until_ns);
    }
  }

  [[nodiscard]] std::size_t outstanding() const { return flights_.size() - idle_.size(); }
  [[nodiscard]] bool under_way() const { return completed_ < submitted_; }
  [[nodiscard]] std::int64_t busy_io_ns(std::int64_t now) const {
    return closed_busy_ns_ + (under_way() ? now - busy_since_ns_ : 0);
  }
  [[nodiscard]] bool ended() {
    if (options_.stop != nullptr && *options_.stop) measurement_.interrupted = true;
    return measurement_.partial();
  }

  IoEngine& engine_;
  const Schedule& schedule_;
  const RunScheduleOptions& options_;
  const ExactTimers exact_timers_;
  std::optional<Processor> processor_;
  std::vector<std::size_t> left_;  ///< by batch: number of commands not completed
  std::vector<Flight> flights_;    ///< by slot
  std::vector<std::uint32_t> idle_;
  std::vector<IoResult> results_;
  std::uint64_t turn_ = 0;  ///< where the next request's memory begins, where it is used in turn
  // Commands pass through these in order: submitted by the schedule, then started on the device.
  std::size_t submitted_ = 0;
  std::size_t next_ = 0;
  std::int64_t next_batch_ = 0;  ///< batch of next_, or an earlier one
  std::size_t completed_ = 0;
  std::int64_t begin_ns_ = 0;
  std::int64_t closed_busy_ns_ = 0;  ///< sum over the closed busy periods
  std::int64_t busy_since_ns_ = 0;   ///< begin of the open one
  ScheduleMeasurement measurement_;
};

}  // namespace

std::size_t memory_bytes(const Schedule& schedule, std::uint32_t depth) {
  return std::size_t{depth} * schedule.limits().max_transfer_bytes;
}

void check(const BlockTarget& target, const Schedule& schedule) {
  for (const IoCommand& command : schedule.commands()) target.check(command);
}

ScheduleMeasurement run_schedule(IoEngine& engine, const Schedule& schedule,
                                 const RunScheduleOptions& options) {
  return Runner(engine, schedule, options).run();
}

}  // namespace kvreplay
