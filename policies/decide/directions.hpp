#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/half.hpp"

namespace kvreplay {

/// The directions that matter most in a set of vectors: right singular vectors of the matrix that
/// has the vectors as rows, computed from the sum of their outer products in double precision.
class Directions {
 public:
  explicit Directions(std::int64_t dim);

  void add(std::span<const float> vector);
  /// Adds every row of one head of `rows`.
  void add(const HalfTensor& rows, std::int64_t head);

  [[nodiscard]] std::int64_t count() const { return count_; }
  /// The `directions` most important ones, in falling order, [directions, dim]: orthonormal, the
  /// largest element of each positive. Directions of singular value 0 complete the basis.
  [[nodiscard]] std::vector<float> leading(std::int64_t directions);
  /// The same for the vectors minus their mean: principal components.
  [[nodiscard]] std::vector<float> principal(std::int64_t directions);

 private:
  void add_waiting();

  std::int64_t dim_;
  std::int64_t stride_;  // dim, in whole runs
  std::int64_t count_ = 0;
  std::int64_t waiting_ = 0;      // vectors whose products are not in the sums yet
  std::vector<double> rows_;      // [kRows, stride], those vectors; zero beyond dim
  std::vector<double> sum_;       // [dim]
  std::vector<double> products_;  // [dim, stride]; only the lower triangle is meant
  std::vector<float> row_;
};

}  // namespace kvreplay
