#pragma once

#include <cstdint>
#include <vector>

#include "base/half.hpp"
#include "base/large_vector.hpp"

namespace kvreplay::kernels {

/// Rows [count, dim] as integer codes times a scale per row, for inner products by integers.
///
/// A row's scale is its largest magnitude / `most`, most = 127 (8 bits) or 7 (4 bits), rounded to a
/// half; a code is x (1 / scale), rounded to the nearest integer, ties to even, with magnitudes
/// above `most` limited to it. A row of zeros, or too small for a half, has scale 0. One scale per
/// row, also of 4 bits, so that a row's products are summed in integers to the end: with a scale
/// per 32 elements, conversions and floating-point sums would take as long as half of the integer
/// products.
class CodedRows {
 public:
  /// bits: 8 or 4.
  CodedRows(std::int64_t dim, int bits);

  [[nodiscard]] std::int64_t count() const { return count_; }
  /// New rows are 0.
  void resize(std::int64_t count);
  /// Encodes a row [dim] of finite values; n < count().
  void set(std::int64_t n, const float* row);

  /// scores[q * score_stride + n] = offsets[q] + queries[q] . rows[n], approximately, for `queries`
  /// row-major [query_count, dim]. A query is rounded as a row of 8 bits is, with a scale in single
  /// precision. The integers' products are summed exactly (dim <= 65536), and the sum, as a float,
  /// is multiplied by row scale * query scale, a float, and added to the offset with one rounding:
  /// the same bits on every instruction set, and whatever the number of queries. Each row is read
  /// from memory once for up to six queries.
  void score(const float* queries, std::int64_t query_count, const float* offsets, float* scores,
             std::int64_t score_stride);

 private:
  std::int64_t dim_;
  int bits_;
  std::int64_t steps_;  // of a panel, 64 bytes each
  std::int64_t count_ = 0;
  LargeVector<std::uint8_t> codes_;  // CodedPanels'
  std::vector<Half> scales_;
  std::vector<std::int8_t> row_;  // the codes of one row, [steps * elements]
  std::vector<std::int8_t> queries_;
  std::vector<float> query_scales_;
  std::vector<std::int32_t> query_sums_;
};

}  // namespace kvreplay::kernels
