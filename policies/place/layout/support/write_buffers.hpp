#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/extent.hpp"
#include "base/parameters.hpp"
#include "policies/decide/log/groups.hpp"
#include "policies/place/layout/layout.hpp"

namespace kvreplay {

/// The new entries of the most recently updated groups wait in memory until they fill a page or
/// their group continues on another page. The entries of any other group are written at once. A
/// page that is not filled whole is read, changed and written. (DynaKV 4, page-aligned buffers)
///
/// Entries that wait count as being on flash: a read of their group covers them.
class WriteBuffers {
 public:
  /// The parameters page_bytes and hot_groups.
  [[nodiscard]] static std::vector<Parameter> parameters();
  explicit WriteBuffers(const Arguments& arguments);

  /// Adds new entries of a group, which belong to `extents` in order of growth.
  void append(std::int32_t stream, GroupId group, std::span<const Extent> extents,
              LayoutTraffic& traffic);
  /// The group has been written whole or no longer exists: none of its entries wait any more.
  void forget(std::int32_t stream, GroupId group);

  /// One page per group with waiting entries.
  [[nodiscard]] std::int64_t held_bytes() const;
  /// The end of the page that holds the region's last byte.
  [[nodiscard]] std::uint64_t whole_pages(std::uint64_t region_bytes) const;

 private:
  struct Buffer {
    std::int32_t stream;
    GroupId group;
    std::uint64_t page = 0;   // number
    std::uint64_t bytes = 0;  // waiting
  };
  void write_page(Buffer& buffer, LayoutTraffic& traffic) const;

  std::uint64_t page_bytes_;  // 0: everything is written where it lies, at once
  std::int64_t hot_groups_;
  std::vector<Buffer> buffers_;  // the most recently updated group last
};

}  // namespace kvreplay
