#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace kvreplay {

/// A progress bar with the time left, on standard error. It shows itself only once the work has
/// taken two seconds and only on a terminal; elsewhere it prints a line every ten seconds.
/// Thread-safe.
class Progress {
 public:
  Progress(std::string label, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t amount = 1);

 private:
  using Clock = std::chrono::steady_clock;
  void show(double elapsed_s);

  std::string label_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_;
  std::mutex mutex_;
};

}  // namespace kvreplay
