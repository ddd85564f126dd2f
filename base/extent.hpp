#pragma once

#include <cstdint>
#include <vector>

namespace kvreplay {

/// A byte range on a device.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] std::uint64_t end() const { return offset + bytes; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// Sorts by offset and merges extents that overlap or touch; drops empty ones.
void coalesce(std::vector<Extent>& extents);
/// Sorts by offset, then length, and drops empty ones.
void sort_extents(std::vector<Extent>& extents);

}  // namespace kvreplay
