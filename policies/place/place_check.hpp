#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/extent.hpp"
#include "policies/place/cache/cache.hpp"
#include "policies/place/layout/layout.hpp"

namespace kvreplay {

/// Watches the placing of one layer and throws std::logic_error where something does not hold that
/// docs/architecture.md promises: every token is in one place; live groups lie within the region,
/// on ranges of their own; what is read was written before; the cache holds live groups alone and
/// says how many bytes they take.
class PlaceCheck {
 public:
  /// Ranges that the layout has written, before any later read.
  void wrote(std::span<const Extent> writes);
  /// A group of `bytes` is read from `extents`; `waiting`: bytes that may still be in memory.
  void read(std::span<const Extent> extents, std::int64_t bytes, std::int64_t waiting) const;
  /// Before an event is applied.
  static void event(const StoredStream& stored, const GroupEvent& event);
  /// `tokens` have been seen by every stream.
  static void end_step(std::span<const StoredStream* const> streams, const Cache& cache,
                       const Layout& layout, std::int64_t tokens);

 private:
  std::map<std::uint64_t, std::uint64_t> written_;  ///< end by begin; disjoint, not touching
};

}  // namespace kvreplay
