#pragma once

#include <cstdint>

namespace kvreplay {

/// Bytes that this process may still allocate: the memory that the system reports as available, or
/// what remains in its control group if that is less. 0 when neither is known.
[[nodiscard]] std::int64_t available_memory_bytes();

/// Bytes of memory that the system has. 0 where it does not report them.
[[nodiscard]] std::int64_t total_memory_bytes();

/// The largest memory that this process has had resident so far, including mapped pages of traces;
/// 0 where the system does not report it.
[[nodiscard]] std::int64_t peak_memory_bytes();

/// The memory of this process's own that is resident now: without files that are mapped. 0 where
/// the system does not report it.
[[nodiscard]] std::int64_t own_memory_bytes();

/// Gives freed memory back to the system, as far as the allocator can.
void give_back_free_memory();

}  // namespace kvreplay
