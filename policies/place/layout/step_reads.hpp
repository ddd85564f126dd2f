#pragma once

#include <cstdint>
#include <vector>

#include "base/extent.hpp"
#include "policies/place/layout/layout.hpp"

namespace kvreplay {

/// The reads of a step as merge_reads has them: ranges that touch become one, or each group's stay
/// by themselves.
class StepReads {
 public:
  explicit StepReads(bool merge) : merge_(merge) {}

  /// Appends where the group lies.
  void locate(const Layout& layout, std::int32_t stream, GroupId group, const StoredStream& stored,
              std::vector<Extent>& reads);
  /// Puts a step's reads in order: coalesce(), or sort_extents().
  void arrange(std::vector<Extent>& reads) const;

 private:
  bool merge_;
  std::vector<Extent> of_group_;
};

}  // namespace kvreplay
