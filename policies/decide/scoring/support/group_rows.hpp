#pragma once

#include <cstdint>
#include <vector>

#include "policies/decide/scoring/support/aggregate.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {

/// One vector per group and KV head: [kv_heads, groups, head_dim]. New rows are zero.
class GroupRows {
 public:
  explicit GroupRows(const StreamShape& shape)
      : dim_(shape.head_dim), heads_(static_cast<std::size_t>(shape.kv_heads)) {}

  void resize(GroupId groups) {
    for (std::vector<float>& head : heads_) head.resize(static_cast<std::size_t>(groups * dim_));
  }
  [[nodiscard]] float* row(std::int64_t kv_head, GroupId group) {
    return heads_[static_cast<std::size_t>(kv_head)].data() + group * dim_;
  }
  /// The rows of all groups.
  [[nodiscard]] const float* head(std::int64_t kv_head) const {
    return heads_[static_cast<std::size_t>(kv_head)].data();
  }

 private:
  std::int64_t dim_;
  std::vector<std::vector<float>> heads_;
};

}  // namespace kvreplay
