#include "policies/place/layout/support/space.hpp"

#include <cassert>
#include <iterator>

namespace kvreplay {

Extent Space::take(std::uint64_t bytes) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [offset, free_bytes] = *range;
    if (free_bytes < bytes) continue;
    free_.erase(range);
    if (free_bytes > bytes) free_.emplace(offset + bytes, free_bytes - bytes);
    return {offset, bytes};
  }
  // A free range at the end is part of the new one.
  std::uint64_t offset = end_;
  if (!free_.empty() && free_.rbegin()->first + free_.rbegin()->second == end_) {
    offset = free_.rbegin()->first;
    free_.erase(std::prev(free_.end()));
  }
  end_ = offset + bytes;
  return {offset, bytes};
}

void Space::give_back(Extent extent) {
  if (extent.bytes == 0) return;
  auto after = free_.upper_bound(extent.offset);
  assert(after == free_.end() || extent.end() <= after->first);
  if (after != free_.end() && after->first == extent.end()) {
    extent.bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    assert(before->first + before->second <= extent.offset);
    if (before->first + before->second == extent.offset) {
      before->second += extent.bytes;
      return;
    }
  }
  free_.emplace(extent.offset, extent.bytes);
}

}  // namespace kvreplay
