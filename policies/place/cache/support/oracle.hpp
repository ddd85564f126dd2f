#pragma once

#include <compare>
#include <cstdint>
#include <memory>

#include "policies/place/cache/cache.hpp"

namespace kvreplay {

/// The capacity that bounds the hit rate of `cache`: its own or, where it has no limit of its own,
/// `held_bytes` > 0, its peak. One of the two members is 0, and the other counts.
struct OracleCapacity {
  std::int64_t groups = 0;
  std::int64_t bytes = 0;
  friend auto operator<=>(const OracleCapacity&, const OracleCapacity&) = default;
};
[[nodiscard]] OracleCapacity oracle_capacity(const PartConfig<Cache>& cache,
                                             std::int64_t held_bytes);

/// The part belady with that capacity.
[[nodiscard]] std::unique_ptr<Cache> oracle_with(const OracleCapacity& capacity,
                                                 const Cache::Context& context);

}  // namespace kvreplay
