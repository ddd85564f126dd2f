#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "devices/real/io_engine.hpp"
#include "devices/real/request_watch.hpp"

namespace kvreplay {

/// What the measuring thread shares with the thread that waits for it.
class Measuring {
 public:
  explicit Measuring(std::uint32_t depth) : watch(depth) {}

  RequestWatch watch;             ///< for the engine
  std::atomic<bool> stop{false};  ///< the measurement is to end early

  /// The waiting thread calls `news` within about a tenth of a second, after all earlier ones. It
  /// is no longer called once a request has gone unanswered.
  void tell(std::function<void()> news);
  /// Called by the waiting thread.
  void deliver();

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> news_;
};

/// Runs `measure` in its own thread and returns when it ends; an exception from it is rethrown
/// here. Meanwhile, about ten times per second, calls `now_and_then` and forwards `stop`.
///
/// Returns early, with the request, when one of at most `depth` outstanding requests has not been
/// answered for `patience_ns`. The thread, in whatever system call it is, is then left behind until
/// the process ends, and never destroys what it uses: all of that must be its own (held by the
/// closure or constructed within it), or outlive the process. It starts no more requests, except
/// one that it was about to start.
[[nodiscard]] std::optional<IoFailure> measure_in_thread(
    std::uint32_t depth, std::int64_t patience_ns, const std::atomic<bool>& stop,
    std::function<void(Measuring&)> measure, const std::function<void()>& now_and_then = {});

}  // namespace kvreplay
