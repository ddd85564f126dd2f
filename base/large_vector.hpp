#pragma once

#include <cstddef>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace kvreplay {

/// Allocates in pages of 2 MiB where the system gives them (Linux, transparent_hugepage not
/// "never"). A pass over many megabytes in pages of 4 KiB waits for the translation of each, twice
/// as long in a virtual machine.
template <typename T>
struct HugePages {
  using value_type = T;

  HugePages() = default;
  template <typename U>
  HugePages(const HugePages<U>&) {}  // NOLINT(google-explicit-constructor): an allocator's rule

  [[nodiscard]] T* allocate(std::size_t n) {
    const std::size_t bytes = n * sizeof(T);
    void* const memory = ::operator new(bytes, alignment(bytes));
#if defined(MADV_HUGEPAGE)
    // Only advice: without it the memory is as good.
    if (bytes >= kPage) static_cast<void>(madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE));
#endif
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t n) {
    ::operator delete(memory, alignment(n * sizeof(T)));
  }
  friend bool operator==(const HugePages&, const HugePages&) {
    return true;
  }

 private:
  static constexpr std::size_t kPage = std::size_t{2} << 20;
  [[nodiscard]] static std::align_val_t alignment(std::size_t bytes) {
    return std::align_val_t{bytes < kPage ? alignof(std::max_align_t) : kPage};
  }
};

/// What is read from end to end at every step.
template <typename T>
using LargeVector = std::vector<T, HugePages<T>>;

}  // namespace kvreplay
