#include "base/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/number_text.hpp"

namespace kvreplay {

using std::chrono::milliseconds;
using std::chrono::seconds;

Progress::Progress(std::string label, std::int64_t total)
    : label_(std::move(label)),
      total_(static_cast<double>(std::max<std::int64_t>(total, 1))),
      terminal_(::isatty(STDERR_FILENO) != 0),
      next_(start_ + seconds(2)) {}

Progress::~Progress() {
  if (shown_ && terminal_) std::fprintf(stderr, "\r\033[K");
}

void Progress::advance(std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  done_ += static_cast<double>(amount) * weight_;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? milliseconds(200) : milliseconds(10000));
  show(std::chrono::duration<double>(now - start_).count());
}

void Progress::begin_stage(std::string label, double weight) {
  const std::lock_guard lock(mutex_);
  label_ = std::move(label);
  weight_ = weight;
}

void Progress::say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  std::fprintf(stderr, "%s%s\n", shown_ && terminal_ ? "\r\033[K" : "", line.c_str());
}

void Progress::show(double elapsed_s) {
  shown_ = true;
  const double share = std::min(done_ / total_, 1.0);
  // The first hundredth tells little of the rest.
  const std::string left =
      share < 0.01 ? "" : format_text("  %.0f s left", elapsed_s * (1 - share) / share);
  constexpr int kWidth = 30;
  const int filled = std::clamp(static_cast<int>(share * kWidth), 0, kWidth);
  const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                          std::string(static_cast<std::size_t>(kWidth - filled), '.');
  std::fprintf(stderr, "%s%s [%s] %3.0f %%%s%s", terminal_ ? "\r\033[K" : "", label_.c_str(),
               bar.c_str(), share * 100, left.c_str(), terminal_ ? "" : "\n");
  std::fflush(stderr);
}

}  // namespace kvreplay
