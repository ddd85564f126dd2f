#pragma once

#include <cstdint>

#include "policies/place/cache/cache.hpp"
#include "policies/place/layout/support/stored_stream.hpp"

namespace kvreplay {

/// What an event of a stream, whose state has taken it, means for a cache.
void follow_event(Cache& cache, std::int32_t stream, const GroupEvent& event,
                  const StoredStream& stored);

}  // namespace kvreplay
