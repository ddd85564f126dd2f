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

/// What a thread that measures shares with the one that waits for it.
class Measuring {
 public:
  explicit Measuring(std::uint32_t depth) : watch(depth) {}

  RequestWatch watch;             ///< for the engine
  std::atomic<bool> stop{false};  ///< the measurement is to end early

  /// `news` is called by the waiting thread, within a tenth of a second or so, and after what was
  /// told before. It is not called any more once a request was not answered.
  void tell(std::function<void()> news);
  /// By the waiting thread.
  void deliver();

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> news_;
};

/// Runs `measure` in a thread of its own, and returns at its end; what it throws is thrown here.
/// `now_and_then` is called meanwhile, and `stop` is handed on, about ten times a second.
///
/// Returns sooner, with the request, when one of at most `depth` that are outstanding has not been
/// answered for `patience_ns`. The thread, in whatever system call it is, is then left behind until
/// the process ends, and never destroys what it uses: all of that must be its own (held by the
/// closure or made within it), or outlive the process. It starts no more requests, but for one that
/// it was about to start.
[[nodiscard]] std::optional<IoFailure> measure_in_thread(
    std::uint32_t depth, std::int64_t patience_ns, const std::atomic<bool>& stop,
    std::function<void(Measuring&)> measure, const std::function<void()>& now_and_then = {});

}  // namespace kvreplay
