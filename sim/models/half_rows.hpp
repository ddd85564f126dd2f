#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/half.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {

/// A layer's vectors in half precision, [heads, capacity, dim]: what a recording would hold, and
/// what policies work on.
class HalfRows {
 public:
  HalfRows(std::int64_t heads, std::int64_t capacity, std::int64_t dim)
      : heads_(heads),
        capacity_(capacity),
        dim_(dim),
        rows_(static_cast<std::size_t>(heads * capacity * dim)) {}

  /// from: one position's vectors, [heads, dim].
  void put(std::int64_t row, const float* from) {
    for (std::int64_t head = 0; head < heads_; ++head) {
      kernels::to_half(from + head * dim_, rows_.data() + (head * capacity_ + row) * dim_, dim_);
    }
  }
  /// The same vectors with room for more rows.
  [[nodiscard]] HalfRows with_capacity(std::int64_t capacity) const {
    HalfRows larger(heads_, capacity, dim_);
    for (std::int64_t head = 0; head < heads_; ++head) {
      std::copy_n(rows_.begin() + head * capacity_ * dim_, capacity_ * dim_,
                  larger.rows_.begin() + head * capacity * dim_);
    }
    return larger;
  }
  [[nodiscard]] Half* row(std::int64_t head, std::int64_t row) {
    return rows_.data() + (head * capacity_ + row) * dim_;
  }
  /// Elements from one head's first row to the next head's.
  [[nodiscard]] std::int64_t head_stride() const { return capacity_ * dim_; }
  [[nodiscard]] std::int64_t bytes() const {
    return std::ssize(rows_) * std::int64_t{sizeof(Half)};
  }
  [[nodiscard]] HalfTensor first(std::int64_t rows) const {
    return {rows_.data(), heads_, rows, dim_, capacity_ * dim_};
  }

 private:
  std::int64_t heads_;
  std::int64_t capacity_;
  std::int64_t dim_;
  std::vector<Half> rows_;
};

}  // namespace kvreplay
