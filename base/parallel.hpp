#pragma once

#include <cstdint>
#include <functional>

namespace kvreplay {

/// The number of threads of the machine; at least 1.
[[nodiscard]] int processor_count();

/// Runs work(0) ... work(count - 1), each once, on up to `threads` threads (at least 1). Indices
/// are taken in order; results must depend only on the index. The exception of the lowest index
/// that failed is rethrown after all threads have stopped.
void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work);

}  // namespace kvreplay
