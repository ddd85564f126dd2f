#include "devices/real/io_ring.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace kvreplay {

IoRing::IoRing(unsigned entries, unsigned setup_flags) {
  io_uring_params parameters{};
  parameters.flags = setup_flags;
  descriptor_ = static_cast<int>(::syscall(SYS_io_uring_setup, entries, &parameters));
  if (descriptor_ < 0) {
    error_ = -errno;
    return;
  }
  takes_timeout_ = (parameters.features & IORING_FEAT_EXT_ARG) != 0;
  const io_sqring_offsets& sq = parameters.sq_off;
  const io_cqring_offsets& cq = parameters.cq_off;
  std::byte* submission =
      map(sq.array + parameters.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
  std::byte* completion =
      map(cq.cqes + parameters.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
  std::byte* requests = map(parameters.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
  if (error_ != 0) return;
  const auto word = [](std::byte* ring, std::uint32_t offset) {
    return reinterpret_cast<unsigned*>(ring + offset);
  };
  submission_tail_ = word(submission, sq.tail);
  submission_array_ = word(submission, sq.array);
  submission_mask_ = *word(submission, sq.ring_mask);
  submissions_ = reinterpret_cast<io_uring_sqe*>(requests);
  completion_head_ = word(completion, cq.head);
  completion_tail_ = word(completion, cq.tail);
  completion_mask_ = *word(completion, cq.ring_mask);
  completions_ = reinterpret_cast<const io_uring_cqe*>(completion + cq.cqes);
}

IoRing::~IoRing() {
  for (const Mapping& mapping : mappings_) {
    if (mapping.address != nullptr) ::munmap(mapping.address, mapping.bytes);
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::byte* IoRing::map(std::size_t bytes, std::uint64_t offset) {
  if (error_ != 0) return nullptr;
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                         descriptor_, static_cast<off_t>(offset));
  if (address == MAP_FAILED) {
    error_ = -errno;
    return nullptr;
  }
  mappings_[mapped_++] = {address, bytes};
  return static_cast<std::byte*>(address);
}

int IoRing::register_file(int descriptor) {
  const long result =
      ::syscall(SYS_io_uring_register, descriptor_, IORING_REGISTER_FILES, &descriptor, 1U);
  return result < 0 ? -errno : 0;
}

int IoRing::register_memory(std::span<std::byte> memory) {
  const iovec vector{memory.data(), memory.size()};
  const long result =
      ::syscall(SYS_io_uring_register, descriptor_, IORING_REGISTER_BUFFERS, &vector, 1U);
  return result < 0 ? -errno : 0;
}

io_uring_sqe& IoRing::prepare() {
  std::atomic_ref<unsigned> tail(*submission_tail_);
  const unsigned at = tail.load(std::memory_order_relaxed);
  const unsigned index = at & submission_mask_;
  submissions_[index] = {};
  submission_array_[index] = index;
  // The kernel looks only during submit(), so the caller may fill in the request later.
  tail.store(at + 1, std::memory_order_release);
  ++prepared_;
  return submissions_[index];
}

int IoRing::submit(unsigned completions, std::int64_t timeout_ns) {
  const bool timed = completions > 0 && timeout_ns > 0;
  __kernel_timespec time{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  io_uring_getevents_arg argument{};
  argument.ts = reinterpret_cast<std::uintptr_t>(&time);
  unsigned flags = 0;
  if (completions > 0) flags |= IORING_ENTER_GETEVENTS;
  if (timeout_ns == 0) completions = 0;  // a look at what is there, without a sleep
  if (timed && takes_timeout_) flags |= IORING_ENTER_EXT_ARG;
  if (timed && !takes_timeout_) flags = completions = 0;
  const bool extended = (flags & IORING_ENTER_EXT_ARG) != 0;
  const long taken = ::syscall(SYS_io_uring_enter, descriptor_, prepared_, completions, flags,
                               extended ? &argument : nullptr, extended ? sizeof argument : 0);
  if (taken < 0) return -errno;
  prepared_ -= static_cast<unsigned>(taken);
  if (timed && !takes_timeout_) {
    // Kernels before 5.11; the ring can be read once a completion is there.
    pollfd ready{descriptor_, POLLIN, 0};
    const timespec patience{time.tv_sec, static_cast<long>(time.tv_nsec)};
    if (::ppoll(&ready, 1, &patience, nullptr) < 0) return -errno;
  }
  return static_cast<int>(taken);
}

}  // namespace kvreplay
