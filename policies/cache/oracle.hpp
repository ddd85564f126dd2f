#pragma once

#include <cstdint>
#include <memory>

#include "policies/cache/cache.hpp"

namespace kvreplay {

/// What bounds the hit rate of `cache`: belady with the same capacity or, where `cache` has no
/// limit of its own, with that of the `held_bytes` > 0 that it held at most.
[[nodiscard]] std::unique_ptr<Cache> oracle_for(const Chosen<Cache>& cache, std::int64_t held_bytes,
                                                const Cache::Context& context);

}  // namespace kvreplay
