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

/// How long a request may take by default before the device counts as one that does not answer.
constexpr double kRequestTimeoutSeconds = 60;

/// A command and where its bytes lie in the memory of the engine.
struct IoRequest {
  IoCommand command;
  std::uint64_t memory_offset = 0;
};

/// Request `index` (0, 1, 2 ...), or nothing: then no more are asked for. An engine with threads
/// calls it from several at once. Requests pass BlockTarget::check; an engine does not repeat it.
using IoSource = std::function<std::optional<IoRequest>(std::uint64_t index)>;

/// A request that transferred all of its bytes. Times are nanoseconds of CLOCK_MONOTONIC, the
/// submission included.
struct IoCompletion {
  std::uint64_t index = 0;
  std::int64_t submitted_ns = 0;
  std::int64_t completed_ns = 0;
  bool write = false;
};

/// What became of the requests. The first failure stops further submissions; those in flight are
/// waited for, and what completed is kept.
struct IoReport {
  std::vector<IoCompletion> completions;  ///< in the order of completion
  std::optional<IoFailure> failure;

  /// Adds the end of a request; `result` is bytes transferred, or a negative errno.
  void add(const IoCommand& command, IoCompletion completion, std::int64_t result);
};

/// The end of a request that IoEngine::start() began.
struct IoResult {
  std::uint32_t slot = 0;
  std::int64_t result = 0;        ///< bytes transferred, or a negative errno
  std::int64_t completed_ns = 0;  ///< of CLOCK_MONOTONIC, when it was noticed

  /// What went wrong, if the command was not done in full.
  [[nodiscard]] std::optional<IoFailure> failure(const IoCommand& command) const;
};

/// A way to do I/O on a real device: a queue for at most `depth` requests. Used from the thread
/// that made it alone.
class IoEngine {
 public:
  static constexpr std::string_view kRole = "io_engine";
  struct Context {
    const BlockTarget& target;
    std::span<std::byte> memory;    ///< aligned for the target; outlives the engine
    std::uint32_t depth = 1;        ///< the greatest that will be asked for
    RequestWatch* watch = nullptr;  ///< told of every request, where there is one; outlives it too
  };

  explicit IoEngine(RequestWatch* watch = nullptr) : watch_(watch) {}
  virtual ~IoEngine() = default;
  IoEngine(const IoEngine&) = delete;
  IoEngine& operator=(const IoEngine&) = delete;

  /// Begins a request under the number `slot` < depth, which no outstanding request has.
  void start(std::uint32_t slot, const IoRequest& request) {
    if (watch_ != nullptr) watch_->started(slot, request.command);
    begin(slot, request);
  }
  /// Waits until a request completes or the clock reaches `until_ns` (CLOCK_MONOTONIC; in the past:
  /// does not wait) and appends those that have completed. A signal may end it sooner, with none.
  /// At least one request is outstanding.
  void wait(std::int64_t until_ns, std::vector<IoResult>& results) {
    const std::size_t before = results.size();
    await(until_ns, results);
    if (watch_ == nullptr) return;
    watch_->go_on();
    for (std::size_t i = before; i < results.size(); ++i) watch_->ended(results[i].slot);
  }
  static constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

  /// Keeps up to `depth` requests outstanding until the source ends or one fails.
  [[nodiscard]] virtual IoReport run(const IoSource& source, std::uint32_t depth);
  /// What a reader of the results should know, such as that buffers could not be registered.
  [[nodiscard]] virtual std::string notes() const { return {}; }

 private:
  /// As start() and wait(), which tell the watch.
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

/// Runs a list of requests, in order.
[[nodiscard]] IoReport run_all(IoEngine& engine, std::span<const IoRequest> requests,
                               std::uint32_t depth);

/// Engines from the one with the least overhead to the one that works everywhere.
[[nodiscard]] std::vector<std::string> engine_preference();

/// An engine that works on this target, and why others do not.
struct EngineChoice {
  struct Refusal {
    std::string engine;
    std::string reason;
  };
  std::string name;
  std::vector<Refusal> refused;
};

/// Tries engines in a child process, because a phone's system-call filter kills who tries io_uring
/// (SIGSYS). `wanted` is a name, or "" for the first of the preference that works. UserError when
/// it is unknown or refused.
[[nodiscard]] EngineChoice choose_engine(const BlockTarget& target, const std::string& wanted);

/// What a reader of a measurement has to know: the kind of memory, and what the engine says.
[[nodiscard]] std::string notes_of(const IoEngine& engine, Pages pages);

/// Nanoseconds of CLOCK_MONOTONIC.
[[nodiscard]] std::int64_t monotonic_ns();

}  // namespace kvreplay
