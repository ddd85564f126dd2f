#include "policies/place/layout/layout.hpp"

#include <algorithm>

namespace kvreplay {

Parameter merge_reads_parameter() {
  return flag_parameter("merge_reads", true,
                        "ranges that a step reads become one read where they touch; false: each "
                        "group is read by itself, as an engine does that asks for one after the "
                        "other");
}

void Layout::locate_entries(std::int32_t stream, GroupId group, const StoredStream& stored,
                            std::vector<EntryPiece>& pieces) const {
  std::vector<Extent> extents;
  locate(stream, group, stored, extents);
  auto extent = extents.begin();
  for (const Token token : stored.groups().members(group)) {
    const auto bytes = static_cast<std::uint64_t>(stored.entry_bytes(token));
    for (std::uint64_t at = 0; at < bytes;) {
      if (extent == extents.end()) return;  // in memory, and not on flash yet
      const std::uint64_t here = std::min(bytes - at, extent->bytes);
      pieces.push_back({token, at, {extent->offset, here}});
      at += here;
      *extent = {extent->offset + here, extent->bytes - here};
      if (extent->bytes == 0) ++extent;
    }
  }
}

}  // namespace kvreplay
