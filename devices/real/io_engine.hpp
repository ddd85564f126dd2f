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

#include "devices/device.hpp"
#include "devices/real/aligned_buffer.hpp"
#include "devices/real/block_target.hpp"
#include "sim/base/registry.hpp"

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

/// A request that did not.
struct IoFailure {
  IoCommand command;
  int error = 0;                        ///< errno; 0 for a short transfer
  std::uint32_t transferred_bytes = 0;  ///< of a short transfer
  std::int64_t unanswered_ns = 0;       ///< > 0: it had not ended so long after its start

  [[nodiscard]] UserError to_error(const BlockTarget& target) const;
};

/// What became of the requests. The first failure stops further submissions; those in flight are
/// waited for, unless the device does not answer, and what completed is kept.
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
    std::span<std::byte> memory;  ///< aligned for the target; outlives the engine
    std::uint32_t depth = 1;      ///< the greatest that will be asked for
  };

  virtual ~IoEngine() = default;
  /// Begins a request under the number `slot` < depth, which no outstanding request has.
  virtual void start(std::uint32_t slot, const IoRequest& request) = 0;
  /// Waits until a request completes or the clock reaches `until_ns` (CLOCK_MONOTONIC; in the past:
  /// does not wait) and appends those that have completed. A signal may end it sooner, with none.
  /// At least one request is outstanding.
  virtual void wait(std::int64_t until_ns, std::vector<IoResult>& results) = 0;
  static constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

  /// Keeps up to `depth` requests outstanding until the source ends or one fails; one that is
  /// outstanding for longer than the patience has failed, and all that are outstanding are
  /// abandoned. Engine threads knows no patience here: its threads wait in the system call.
  [[nodiscard]] virtual IoReport run(const IoSource& source, std::uint32_t depth,
                                     std::int64_t patience_ns = kForever);
  /// Gives up on what is outstanding and starts nothing any more. The kernel may still write to the
  /// memory: neither it nor the engine may be destroyed afterwards.
  void abandon() {
    abandoned_ = true;
    start_no_more();
  }
  [[nodiscard]] bool abandoned() const { return abandoned_; }
  /// What a reader of the results should know, such as that buffers could not be registered.
  [[nodiscard]] virtual std::string notes() const { return {}; }

 private:
  virtual void start_no_more() {}

  bool abandoned_ = false;
};

/// An engine and its memory. Both stay for good when the engine has abandoned requests.
class EngineWithMemory {
 public:
  EngineWithMemory(const std::string& engine, const BlockTarget& target, std::size_t memory_bytes,
                   Pages pages, std::uint32_t depth);
  ~EngineWithMemory();
  EngineWithMemory(const EngineWithMemory&) = delete;
  EngineWithMemory& operator=(const EngineWithMemory&) = delete;

  [[nodiscard]] IoEngine& engine() const { return *engine_; }
  [[nodiscard]] std::span<std::byte> memory() const { return memory_->bytes(); }

 private:
  std::unique_ptr<AlignedBuffer> memory_;
  std::unique_ptr<IoEngine> engine_;
};

/// Finds a request that the device does not answer. It looks now and then, because looking at all
/// that are outstanding at every completion would cost time that is measured.
class Patience {
 public:
  struct Unanswered {
    std::uint32_t slot = 0;
    std::int64_t for_ns = 0;
  };

  /// Up to a year, for slots below `depth`; IoEngine::kForever never looks.
  Patience(std::int64_t limit_ns, std::uint32_t depth);
  void started(std::uint32_t slot, std::int64_t now_ns) { started_ns_[slot] = now_ns; }
  void ended(std::uint32_t slot) { started_ns_[slot] = IoEngine::kForever; }
  [[nodiscard]] std::int64_t next_look_ns() const { return next_look_ns_; }
  /// A request that has been outstanding for the limit. Looks once in an eighth of it.
  [[nodiscard]] std::optional<Unanswered> unanswered(std::int64_t now_ns);

 private:
  std::int64_t limit_ns_;
  std::int64_t next_look_ns_;
  std::vector<std::int64_t> started_ns_;  ///< by slot; IoEngine::kForever: not outstanding
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
