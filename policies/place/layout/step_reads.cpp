#include "policies/place/layout/step_reads.hpp"

namespace kvreplay {

void StepReads::locate(const Layout& layout, std::int32_t stream, GroupId group,
                       const StoredStream& stored, std::vector<Extent>& reads) {
  if (merge_) {
    layout.locate(stream, group, stored, reads);
    return;
  }
  of_group_.clear();  // a layout merges what touches the extents that it is given
  layout.locate(stream, group, stored, of_group_);
  reads.insert(reads.end(), of_group_.begin(), of_group_.end());
}

void StepReads::arrange(std::vector<Extent>& reads) const {
  if (merge_) {
    coalesce(reads);
  } else {
    sort_extents(reads);
  }
}

}  // namespace kvreplay
