#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "policies/groups.hpp"
#include "sim/base/extent.hpp"
#include "sim/base/registry.hpp"

namespace kvreplay {

/// Role: where a group lies on flash. One layout places the streams of one layer of one sequence in
/// a region of its own that begins at offset 0.
class Layout {
 public:
  static constexpr std::string_view kRole = "layout";
  struct Context {
    std::int64_t streams = 1;
    std::int64_t entry_bytes = 0;  ///< of one entry of one stream in format 0
    std::int64_t max_tokens = 0;   ///< the sequence never grows beyond
  };

  virtual ~Layout() = default;

  /// Follows an event of a stream; `groups` has already applied it. Appends the byte ranges
  /// written.
  virtual void on_event(std::int32_t stream, const GroupEvent& event, const Groups& groups,
                        std::vector<Extent>& writes) = 0;
  /// Appends the byte ranges that hold a live group's entries, in any order.
  virtual void locate(std::int32_t stream, GroupId group, const Groups& groups,
                      std::vector<Extent>& extents) const = 0;
  /// The region's size so far: no extent reaches beyond.
  [[nodiscard]] virtual std::uint64_t region_bytes() const = 0;
};

}  // namespace kvreplay
