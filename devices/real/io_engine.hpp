#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.hpp"
#include "devices/device.hpp"
#include "devices/io_failure.hpp"
#include "devices/real/aligned_buffer.hpp"
#include "devices/real/block_target.hpp"
#include "devices/real/request_watch.hpp"

namespace kvreplay {

/// Default time after which a request without an answer means that the device does not answer.
constexpr double kRequestTimeoutSeconds = 60;

/// A command and the location of its bytes in the engine's memory.
struct IoRequest {
  IoCommand command;
  std::uint64_t memory_offset = 0;
};

/// Returns request `index` (0, 1, 2 ...), or nothing, after which it is not called again. An engine
/// with threads calls it from several at once. Requests have passed BlockTarget::check; an engine
/// does not repeat the check.
using IoSource = std::function<std::optional<IoRequest>(std::uint64_t index)>;

/// A request that transferred all its bytes. Times are nanoseconds of CLOCK_MONOTONIC and include
/// the submission.
struct IoCompletion {
  std::uint64_t index = 0;
  std::int64_t submitted_ns = 0;
  std::int64_t completed_ns = 0;
  bool write = false;
};

/// Outcome of the requests. The first failure stops further submissions; requests in flight are
/// waited for, and completed ones are kept.
struct IoReport {
  std::vector<IoCompletion> completions;  ///< in the order of completion
  std::optional<IoFailure> failure;

  /// Records the end of a request; `result` is bytes transferred, or a negative errno.
  void add(const IoCommand& command, IoCompletion completion, std::int64_t result);
};

/// The end of a request that IoEngine::start() began.
struct IoResult {
  std::uint32_t slot = 0;
  std::int64_t result = 0;        ///< bytes transferred, or a negative errno
  std::int64_t completed_ns = 0;  ///< CLOCK_MONOTONIC time at which it was noticed

  /// What went wrong, if the command did not transfer everything.
  [[nodiscard]] std::optional<IoFailure> failure(const IoCommand& command) const;
};

/// A way to do I/O on a real device: a queue for at most `depth` requests. It is used only from the
/// thread that constructed it.
class IoEngine {
 public:
  static constexpr std::string_view kRole = "io_engine";
  struct Context {
    const BlockTarget& target;
    std::span<std::byte> memory;    ///< aligned for the target; outlives the engine
    std::uint32_t depth = 1;        ///< the greatest depth that will be used
    RequestWatch* watch = nullptr;  ///< notified of every request, unless null; outlives the engine
  };

  explicit IoEngine(RequestWatch* watch = nullptr) : watch_(watch) {}
  virtual ~IoEngine() = default;
  IoEngine(const IoEngine&) = delete;
  IoEngine& operator=(const IoEngine&) = delete;

  /// Begins a request under the number `slot` < depth, which no outstanding request uses.
  void start(std::uint32_t slot, const IoRequest& request) {
    if (watch_ != nullptr) watch_->notify_start(slot, request.command);
    begin(slot, request);
  }
  /// Waits until a request completes or the clock reaches `until_ns` (CLOCK_MONOTONIC; a time in
  /// the past means no wait) and appends those that have completed. A signal may end the wait
  /// early, with none. At least one request must be outstanding.
  void wait(std::int64_t until_ns, std::vector<IoResult>& results) {
    const std::size_t before = results.size();
    await(until_ns, results);
    if (watch_ == nullptr) return;
    watch_->go_on();
    for (std::size_t i = before; i < results.size(); ++i) watch_->notify_end(results[i].slot);
  }
  static constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

  /// Keeps up to `depth` requests outstanding until the source ends or one fails.
  [[nodiscard]] virtual IoReport run(const IoSource& source, std::uint32_t depth);
  /// What a reader of the results should know, such as that buffers could not be registered.
  [[nodiscard]] virtual std::string notes() const { return {}; }

 private:
  /// start() and wait() without notifying the watch.
  virtual void begin(std::uint32_t slot, const IoRequest& request) = 0;
  virtual void await(std::int64_t until_ns, std::vector<IoResult>& results) = 0;

  RequestWatch* watch_;
};

/// An engine and its memory.
class EngineWithMemory {
 public:
  EngineWithMemory(const std::string& engine, const BlockTarget& target, std::size_t memory_bytes,
                   Pages pages, std::uint32_t depth, RequestWatch* watch);

  [[nodiscard]] IoEngine& engine() const { return *engine_; }
  [[nodiscard]] std::span<std::byte> memory() const { return memory_.bytes(); }

 private:
  AlignedBuffer memory_;
  std::unique_ptr<IoEngine> engine_;
};

/// Runs a list of requests in order.
[[nodiscard]] IoReport run_all(IoEngine& engine, std::span<const IoRequest> requests,
                               std::uint32_t depth);

/// Engine names, from the one with the least overhead to the one that works everywhere.
[[nodiscard]] std::vector<std::string> engine_preference();

/// An engine that works on this target, and why the others do not.
struct EngineChoice {
  struct Refusal {
    std::string engine;
    std::string reason;
  };
  std::string name;
  std::vector<Refusal> refused;
};

/// Tries engines in a child process, because a phone's system-call filter kills a process that
/// tries io_uring (SIGSYS). `wanted` is a name, or "" for the first in the order of preference that
/// works. Throws UserError when it is unknown or refused.
[[nodiscard]] EngineChoice choose_engine(const BlockTarget& target, const std::string& wanted);

/// "ordinary", "huge", "scattered".
[[nodiscard]] std::string to_text(Pages pages);

/// What a reader of a measurement has to know: the kind of memory, and the engine's own notes.
[[nodiscard]] std::string notes_of(const IoEngine& engine, Pages pages);

/// Nanoseconds of CLOCK_MONOTONIC.
[[nodiscard]] std::int64_t monotonic_ns();

}  // namespace kvreplay
