#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "sim/time/machine/step_task.hpp"

namespace kvreplay {

/// What a processor computes in a layer or, for kHead, after the last one. It is a set: `a | b` is
/// one piece of work, run in the order below, during which nothing else is requested of the
/// machine.
enum class Kernels : std::uint8_t {
  kProjectQuery = 1,
  kProjectKeyValue = 2,
  kProject = kProjectQuery | kProjectKeyValue,
  kScore = 4,   ///< scoring and selection, after which the layer's reads are known
  kAttend = 8,  ///< attention, output projection, feed-forward; the step's entries join the layer
  kHead = 16,   ///< LM head
};
[[nodiscard]] constexpr Kernels operator|(Kernels a, Kernels b) {
  return static_cast<Kernels>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
/// Whether `all` contains all of `some`.
[[nodiscard]] constexpr bool contains(Kernels all, Kernels some) {
  return (static_cast<unsigned>(all) & static_cast<unsigned>(some)) == static_cast<unsigned>(some);
}

/// Transfers are started and waited for as a whole, for the whole batch.
enum class TransferKind : std::uint8_t {
  kReads,       ///< selected groups that the cache does not hold
  kWrites,      ///< entries that the step adds, and what the layout moves
  kIndexReads,  ///< representatives; none unless Pipeline::index_on_flash()
  kCacheReads,  ///< cached groups; none unless Pipeline::pages_cache()
};
inline constexpr std::size_t kTransferKinds = 4;

/// Something that a step may have to wait for. It belongs to a machine, which defines time.
class Waitable {
 public:
  /// Called once before each wait. If true, the step continues at once.
  [[nodiscard]] virtual bool is_over() = 0;
  /// Otherwise calls step.resume() when it is over, but not before this call has returned. Only one
  /// step at a time may wait.
  virtual void resume_when_over(WaitingStep& step) = 0;

 protected:
  ~Waitable() = default;
};

/// What a StepTask awaits.
class [[nodiscard]] Wait {
 public:
  explicit Wait(Waitable& what) : what_(what) {}
  [[nodiscard]] bool await_ready() const { return what_.is_over(); }
  void await_suspend(std::coroutine_handle<WaitingStep> step) const {
    what_.resume_when_over(step.promise());
  }
  void await_resume() const {}

 private:
  Waitable& what_;
};

/// What a pipeline drives: one processor, which computes one thing at a time, and one device. A
/// machine knows what each layer computes, reads and writes at the current step. A pipeline decides
/// in which order, and what overlaps.
///
/// A pipeline requests the next thing only when what it waits for is over. For each layer, each
/// kind of transfer is in progress at most once.
class Machine {
 public:
  static constexpr std::size_t kNoLayer = std::numeric_limits<std::size_t>::max();

  virtual ~Machine() = default;

  /// Layers of the model. A step runs each of them once.
  [[nodiscard]] virtual std::size_t layers() const = 0;
  /// Takes the processor after earlier requests. Over when everything has been computed.
  virtual Wait compute(Kernels kernels, std::size_t layer) = 0;
  Wait compute_head() { return compute(Kernels::kHead, kNoLayer); }
  /// Returns at once. Starting a transfer that is in progress is a std::logic_error.
  virtual void start(TransferKind kind, std::size_t layer) = 0;
  /// Over when the latest transfer of this kind that was started for the layer has completed,
  /// possibly one of the previous step; at once where there is none.
  virtual Wait wait(TransferKind kind, std::size_t layer) = 0;
};

}  // namespace kvreplay
