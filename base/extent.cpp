#include "base/extent.hpp"

#include <algorithm>

namespace kvreplay {

void coalesce(std::vector<Extent>& extents) {
  std::erase_if(extents, [](const Extent& extent) { return extent.bytes == 0; });
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::size_t kept = 0;
  for (const Extent& extent : extents) {
    if (kept > 0 && extent.offset <= extents[kept - 1].end()) {
      Extent& last = extents[kept - 1];
      last.bytes = std::max(last.end(), extent.end()) - last.offset;
    } else {
      extents[kept++] = extent;
    }
  }
  extents.resize(kept);
}

void sort_extents(std::vector<Extent>& extents) {
  std::erase_if(extents, [](const Extent& extent) { return extent.bytes == 0; });
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
}

}  // namespace kvreplay
