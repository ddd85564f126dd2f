#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/extent.hpp"
#include "base/registry.hpp"
#include "policies/place/layout/support/co_retrieval.hpp"
#include "policies/place/layout/support/stored_stream.hpp"

namespace kvreplay {

/// The traffic that a layout causes itself: the ranges that it writes, and those that it reads only
/// to move their contents.
struct LayoutTraffic {
  std::vector<Extent> writes;
  std::vector<Extent> moved_reads;
};

/// Role: where a group lies on flash. One layout places the streams of one layer of one sequence in
/// a region of its own that begins at offset 0. Ranges of different live groups never overlap.
class Layout {
 public:
  static constexpr std::string_view kRole = "layout";
  static constexpr Stage kStage = Stage::kPlace;
  struct Context {
    std::int64_t streams = 1;
    std::int64_t entry_bytes = 0;  ///< of one entry of one stream in its largest format
    std::int64_t max_tokens = 0;   ///< upper limit of the sequence's length
    /// By stream, of a log that outlives the layout; empty where none is known.
    std::vector<WindowSelections> window{};
  };

  virtual ~Layout() = default;

  /// Follows an event of a stream, which `stored` has already taken. Entries that join a group come
  /// from memory, and a group that is split is in memory. Appends to `traffic`.
  virtual void notify_event(std::int32_t stream, const GroupEvent& event,
                            const StoredStream& stored, LayoutTraffic& traffic) = 0;
  /// Called after all of the prompt's events. The layout may place its groups anew.
  virtual void end_prompt(std::int32_t /*stream*/, const StoredStream& /*stored*/,
                          LayoutTraffic& /*traffic*/) {}
  /// Appends the byte ranges that hold a live group's entries. They are disjoint, in any order, and
  /// group_bytes in sum.
  virtual void locate(std::int32_t stream, GroupId group, const StoredStream& stored,
                      std::vector<Extent>& extents) const = 0;
  /// The region's size so far. No extent reaches beyond it.
  [[nodiscard]] virtual std::uint64_t region_bytes() const = 0;
  /// Bytes of memory that hold entries waiting to be written.
  [[nodiscard]] virtual std::int64_t held_bytes() const { return 0; }
  /// Whether the layout orders groups by Context::window.
  [[nodiscard]] virtual bool needs_window() const { return false; }
};

}  // namespace kvreplay
