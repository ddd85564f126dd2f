// By hand: silent while the work is short, and lines in place of a bar where there is no terminal.

#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace kvreplay {

/// A progress bar with the remaining time, on standard error. On a terminal it appears once the
/// work has taken two seconds; elsewhere it prints a line every ten seconds. Thread-safe.
class Progress {
 public:
  Progress(std::string label, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t amount = 1);
  /// Begins a stage: its name, and the share of the total per step of advance().
  void begin_stage(std::string label, double weight);
  /// Prints a line above the bar, if there is one.
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  void show(double elapsed_s);

  std::string label_;
  double total_;
  double done_ = 0;
  double weight_ = 1;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_;
  std::mutex mutex_;
};

}  // namespace kvreplay
