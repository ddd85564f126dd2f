#pragma once

#include <cstdint>

namespace kvreplay {

/// Most memory that this process has had resident so far, mapped pages of traces included; 0 where
/// the system does not say.
[[nodiscard]] std::int64_t peak_memory_bytes();

}  // namespace kvreplay
