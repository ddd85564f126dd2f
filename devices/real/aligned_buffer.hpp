#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace kvreplay {

/// In huge pages, a large request covers a few long pieces of memory. In ordinary pages, which most
/// programs use, it covers many short ones, and the kernel may have to split it. How many, chance
/// decides, save in scattered pages: there, no two neighbours are one piece, as in the memory of a
/// program that has run for long. A measurement uses scattered pages in turn, and has so many that
/// no request finds its memory in the processor's caches.
enum class Pages { kOrdinary, kHuge, kScattered };

/// Memory of scattered pages, at least: more than the caches of the processors that we know.
constexpr std::size_t kScatteredBytes = 64 << 20;

/// Memory for direct I/O: zeroed, aligned, and paged in, so that no measured request pays for a
/// page fault.
class AlignedBuffer {
 public:
  /// `alignment` is a power of two; the memory is aligned to whole pages of 4096 bytes at least.
  /// Huge pages are a request that the system may not grant.
  AlignedBuffer(std::size_t bytes, std::size_t alignment, Pages pages = Pages::kOrdinary)
      : bytes_(bytes) {
    constexpr std::size_t kHugePage = 2 << 20;
    alignment = std::max<std::size_t>(alignment, pages == Pages::kHuge ? kHugePage : 4096);
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
    if (!data_) throw std::bad_alloc();
    if (pages == Pages::kHuge) ::madvise(data_.get(), rounded, MADV_HUGEPAGE);
    if (pages == Pages::kScattered) page_in_apart(rounded);
    std::memset(data_.get(), 0, rounded);
  }

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_.get(), bytes_}; }

 private:
  /// The kernel takes pages from its free ones in order: every other page first, then the rest.
  void page_in_apart(std::size_t bytes) {
    constexpr std::size_t kPage = 4096;  // larger ones are paged in as a whole
    ::madvise(data_.get(), bytes, MADV_NOHUGEPAGE);
    for (const std::size_t first : {std::size_t{0}, kPage}) {
      for (std::size_t at = first; at < bytes; at += 2 * kPage) data_.get()[at] = std::byte{1};
    }
  }

  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_;
};

}  // namespace kvreplay
