#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/extent.hpp"
#include "base/parameters.hpp"
#include "policies/decide/log/groups.hpp"
#include "policies/place/layout/layout.hpp"

namespace kvreplay {

/// New entries of the groups that were updated most recently wait in memory until they fill a page
/// or the group goes on to another page; a group that is not among them is written at once. A page
/// that is not filled whole is read, changed and written. (DynaKV 4, page-aligned buffers)
///
/// What waits counts as being on flash: a read of its group covers it.
class WriteBuffers {
 public:
  /// page_bytes, hot_groups.
  [[nodiscard]] static std::vector<Parameter> parameters();
  explicit WriteBuffers(const Arguments& arguments);

  /// New entries of a group belong to `extents`, in the order of growth.
  void append(std::int32_t stream, GroupId group, std::span<const Extent> extents,
              LayoutTraffic& traffic);
  /// The group is written whole, or gone: nothing of it waits any more.
  void forget(std::int32_t stream, GroupId group);

  /// One page for each group that has one.
  [[nodiscard]] std::int64_t held_bytes() const;
  /// The end of the page that the region's last byte lies in.
  [[nodiscard]] std::uint64_t whole_pages(std::uint64_t region_bytes) const;

 private:
  struct Buffer {
    std::int32_t stream;
    GroupId group;
    std::uint64_t page = 0;   // number
    std::uint64_t bytes = 0;  // that wait
  };
  void write_page(Buffer& buffer, LayoutTraffic& traffic) const;

  std::uint64_t page_bytes_;  // 0: everything is written where it lies, at once
  std::int64_t hot_groups_;
  std::vector<Buffer> buffers_;  // the most recently updated group last
};

}  // namespace kvreplay
