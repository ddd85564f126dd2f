#pragma once

#include <linux/io_uring.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvreplay {

/// The two queues that io_uring shares with the kernel, through raw system calls. liburing is then
/// not needed; no phone and few cross compilers have it. Errors are negative errnos.
class IoRing {
 public:
  /// `entries` is the greatest number of outstanding requests. After a failure, error() gives the
  /// cause and no other function may be called.
  IoRing(unsigned entries, unsigned setup_flags);
  ~IoRing();
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;

  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] int register_file(int descriptor);
  [[nodiscard]] int register_memory(std::span<std::byte> memory);

  /// A zeroed request to fill in; it goes to the kernel with the next submit(). At most `entries`
  /// of them may be prepared.
  [[nodiscard]] io_uring_sqe& prepare();
  static constexpr std::int64_t kForever = -1;
  /// Submits the prepared requests and waits for `completions` to arrive, for at most `timeout_ns`.
  /// Returns how many requests the kernel took; the others stay prepared. A timeout may be reported
  /// as -ETIME.
  int submit(unsigned completions, std::int64_t timeout_ns = kForever);

  /// Calls reap(user_data, result) for each completion that has arrived.
  template <typename Reap>
  void drain(const Reap& reap) {
    std::atomic_ref<unsigned> head(*completion_head_);
    const std::atomic_ref<unsigned> tail(*completion_tail_);
    unsigned at = head.load(std::memory_order_relaxed);
    while (at != tail.load(std::memory_order_acquire)) {
      const io_uring_cqe& entry = completions_[at & completion_mask_];
      reap(entry.user_data, entry.res);
      head.store(++at, std::memory_order_release);
    }
  }

 private:
  /// Maps `bytes` of the ring at `offset`; null after a failure.
  [[nodiscard]] std::byte* map(std::size_t bytes, std::uint64_t offset);

  struct Mapping {
    void* address = nullptr;
    std::size_t bytes = 0;
  };
  int descriptor_ = -1;
  int error_ = 0;
  bool takes_timeout_ = false;
  Mapping mappings_[3];
  unsigned mapped_ = 0;

  unsigned* submission_tail_ = nullptr;
  unsigned* submission_array_ = nullptr;
  unsigned submission_mask_ = 0;
  io_uring_sqe* submissions_ = nullptr;
  unsigned prepared_ = 0;

  unsigned* completion_head_ = nullptr;
  unsigned* completion_tail_ = nullptr;
  unsigned completion_mask_ = 0;
  const io_uring_cqe* completions_ = nullptr;
};

}  // namespace kvreplay
