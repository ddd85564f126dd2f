#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.hpp"
#include "traces/operations/head_statistics.hpp"

namespace kvreplay {

/// Near normal: the sum of four uniforms, mean 0 and variance 1, from one draw of 64 bits. The same
/// on every machine.
[[nodiscard]] float near_normal(Random& random);

/// Rows as a mean for each cluster plus Gaussian noise, correlated from row to row.
struct VectorModel {
  std::int64_t dim = 0;
  std::vector<float> means;   ///< [clusters, dim]
  std::vector<float> scales;  ///< [clusters]: noise scale; some clusters are tight, some wide
  std::vector<float> factor;  ///< [dim, dim], lower triangle: covariance of the noise = F F^T
  double correlation = 0;     ///< of the noise of neighbouring rows
  double noise_variance = 0;  ///< trace of the covariance

  [[nodiscard]] std::span<const float> mean(std::int64_t cluster) const {
    return RowView{means, dim}.row(cluster);
  }
  [[nodiscard]] float scale(std::int64_t cluster) const {
    return scales[static_cast<std::size_t>(cluster)];
  }
};

/// `labels[i]` is the cluster of row i. A cluster's mean is pulled towards that of all rows, with
/// the weight of `prior_rows` rows: 0 = not at all.
[[nodiscard]] VectorModel fit_vectors(RowView rows, std::span<const std::int64_t> labels,
                                      std::int64_t clusters, double prior_rows);

/// Noise with the model's covariance, row by row.
class NoiseWalk {
 public:
  explicit NoiseWalk(const VectorModel& model)
      : model_(&model), state_(static_cast<std::size_t>(model.dim)) {}
  /// Adds `scale` times the next row's noise to `row`.
  void add(Random& random, double correlation, float scale, std::span<float> row);

 private:
  const VectorModel* model_;
  std::vector<float> state_;  ///< before the factor: unit variance, independent dimensions
  bool begun_ = false;
};

struct Clustering {
  std::int64_t clusters = 0;
  std::vector<std::int64_t> labels;  ///< [rows]
  double within_variance = 0;        ///< mean squared distance to the centre
  double total_variance = 0;         ///< to the mean of all
};

/// Lloyd's k-means. With `clusters` = 0, uses as many as still help: doubled from 8 while that
/// reduces the variance within clusters by 3 % or more, at most 64.
[[nodiscard]] Clustering cluster_rows(RowView rows, std::int64_t clusters, Random& random);

}  // namespace kvreplay
