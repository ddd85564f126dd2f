#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "devices/device.hpp"

namespace kvreplay {

/// A request that the device has not answered.
struct UnansweredRequest {
  IoCommand command;
  std::int64_t for_ns = 0;  ///< at least this long
};

/// The outstanding requests, as seen from another thread, because the thread that makes them may be
/// blocked in a system call: in a submission as well as in a wait. Recording the begin and end of a
/// request takes a few plain stores, no lock and no clock, and other threads read their cache line
/// only ten times per second.
class RequestWatch {
 public:
  /// For slots below `depth`.
  explicit RequestWatch(std::uint32_t depth) : slots_(depth), seen_(depth) {}

  // Called by the thread that makes the requests of the slot.

  /// Call before the request is submitted.
  void notify_start(std::uint32_t slot, const IoCommand& command) {
    go_on();
    Slot& at = slots_[slot];
    at.offset.store(command.offset, std::memory_order_relaxed);
    at.bytes.store(command.bytes, std::memory_order_relaxed);
    at.write.store(command.write, std::memory_order_relaxed);
    count(at);
  }
  void notify_end(std::uint32_t slot) {
    count(slots_[slot]);
    go_on();
  }
  /// Never returns once the requests have been abandoned: the thread that made them then waits for
  /// the end of the process, because the kernel may still write to its memory.
  void go_on() const {
    if (abandoned_.load(std::memory_order_relaxed)) wait_for_the_end();
  }

  // Called by one other thread.

  /// A request that has been outstanding for the limit since an earlier call saw it.
  [[nodiscard]] std::optional<UnansweredRequest> unanswered(std::int64_t now_ns,
                                                            std::int64_t limit_ns);
  void abandon() { abandoned_ = true; }

 private:
  /// One cache line each, because engine "threads" has one thread per slot.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> begins_and_ends{0};  ///< odd while a request is outstanding
    std::atomic<std::uint64_t> offset{0};
    std::atomic<std::uint32_t> bytes{0};
    std::atomic<bool> write{false};
  };
  struct Seen {
    std::uint64_t begins_and_ends = 0;
    std::int64_t since_ns = 0;
  };

  static void count(Slot& slot) {  // only one thread writes it
    const std::uint64_t before = slot.begins_and_ends.load(std::memory_order_relaxed);
    slot.begins_and_ends.store(before + 1, std::memory_order_release);
  }
  [[noreturn]] static void wait_for_the_end();

  std::vector<Slot> slots_;
  std::vector<Seen> seen_;  ///< by slot, as last seen
  std::atomic<bool> abandoned_{false};
};

}  // namespace kvreplay
