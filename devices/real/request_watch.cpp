#include "devices/real/request_watch.hpp"

#include <unistd.h>

namespace kvreplay {

std::optional<UnansweredRequest> RequestWatch::unanswered(std::int64_t now_ns,
                                                          std::int64_t limit_ns) {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    const Slot& at = slots_[slot];
    Seen& seen = seen_[slot];
    const std::uint64_t count = at.begins_and_ends.load(std::memory_order_acquire);
    if (count != seen.begins_and_ends) {
      seen = {count, now_ns};
    } else if (count % 2 == 1 && now_ns - seen.since_ns >= limit_ns) {
      // Written before the count, and not rewritten unless the request ends at this very moment.
      const IoCommand command{at.offset.load(std::memory_order_relaxed),
                              at.bytes.load(std::memory_order_relaxed),
                              at.write.load(std::memory_order_relaxed)};
      if (at.begins_and_ends.load(std::memory_order_acquire) != count) continue;
      return UnansweredRequest{command, now_ns - seen.since_ns};
    }
  }
  return std::nullopt;
}

void RequestWatch::wait_for_the_end() {
  for (;;) ::pause();
}

}  // namespace kvreplay
