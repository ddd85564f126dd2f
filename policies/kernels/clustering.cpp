// By hand: k-means is to give the same bits on every instruction set.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.hpp"
#include "policies/kernels/dispatch.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay::kernels {
namespace {

constexpr std::int64_t kPanelWidth = 16;

/// Finds the nearest centroids of rows. Every metric is expressed as "the largest row . c' + bias":
///   cosine         c' = c / |c| (0 where |c| = 0),  bias = 0
///   Euclidean      c' = c,                          bias = -|c|^2 / 2   (|row|^2 does not matter)
///   inner product  c' = c,                          bias = 0
class NearestCentroid {
 public:
  NearestCentroid(std::int64_t centroid_count, std::int64_t dim, Metric metric)
      : count_(centroid_count),
        panel_count_((centroid_count + kPanelWidth - 1) / kPanelWidth),
        dim_(dim),
        metric_(metric),
        panels_(static_cast<std::size_t>(panel_count_ * dim * kPanelWidth)),
        bias_(static_cast<std::size_t>(panel_count_ * kPanelWidth),
              -std::numeric_limits<float>::infinity()),
        scratch_(static_cast<std::size_t>(kScratchRows * dim)) {}

  /// centroids: [count, dim].
  void set_centroids(const float* centroids) {
    for (std::int64_t c = 0; c < count_; ++c) {
      const float* centroid = centroids + c * dim_;
      const float square = table().dot(centroid, centroid, dim_);
      float factor = 1.0f;
      if (metric_ == Metric::kCosine) factor = square > 0.0f ? 1.0f / std::sqrt(square) : 0.0f;
      float* lane = panels_.data() + c / kPanelWidth * dim_ * kPanelWidth + c % kPanelWidth;
      for (std::int64_t d = 0; d < dim_; ++d) lane[d * kPanelWidth] = centroid[d] * factor;
      bias_[static_cast<std::size_t>(c)] = metric_ == Metric::kEuclidean ? -0.5f * square : 0.0f;
    }
  }

  void label(const Half* rows, std::int64_t row_count, std::int32_t* labels) {
    const PackedCentroids packed{panels_.data(), bias_.data(), panel_count_, dim_};
    table().nearest(rows, row_count, packed, scratch_.data(), labels);
  }

 private:
  std::int64_t count_;
  std::int64_t panel_count_;
  std::int64_t dim_;
  Metric metric_;
  std::vector<float> panels_;
  std::vector<float> bias_;
  std::vector<float> scratch_;
};

/// Draws `count` distinct rows; they keep the order drawn.
void draw_rows(const Half* rows, std::int64_t row_count, std::int64_t dim, std::int64_t count,
               std::uint64_t seed, float* centroids) {
  Random random(seed);
  std::vector<std::int64_t> order(static_cast<std::size_t>(row_count));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t c = 0; c < count; ++c) {
    const auto left = static_cast<std::uint64_t>(row_count - c);
    const auto pick = static_cast<std::size_t>(c) + random.below(left);
    std::swap(order[static_cast<std::size_t>(c)], order[pick]);
    to_float(rows + order[static_cast<std::size_t>(c)] * dim, centroids + c * dim, dim);
  }
}

/// The mean of each centroid's rows, summed in the rows' order; without rows, the centroid stays as
/// it is.
void move_centroids(const Half* rows, std::span<const std::int32_t> labels, std::int64_t count,
                    std::int64_t dim, float* centroids) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(count), 0);
  for (const std::int32_t label : labels) ++sizes[static_cast<std::size_t>(label)];
  for (std::int64_t c = 0; c < count; ++c) {
    if (sizes[static_cast<std::size_t>(c)] > 0) std::fill_n(centroids + c * dim, dim, 0.0f);
  }
  const Half* row = rows;
  for (const std::int32_t label : labels) {
    table().add_row(row, dim, centroids + label * dim);
    row += dim;
  }
  for (std::int64_t c = 0; c < count; ++c) {
    const auto size = static_cast<float>(sizes[static_cast<std::size_t>(c)]);
    if (size == 0.0f) continue;
    for (std::int64_t d = 0; d < dim; ++d) centroids[c * dim + d] /= size;
  }
}

}  // namespace

void assign(const Half* rows, std::int64_t row_count, const float* centroids,
            std::int64_t centroid_count, std::int64_t dim, Metric metric,
            std::span<std::int32_t> labels) {
  assert(centroid_count >= 1 && labels.size() >= static_cast<std::size_t>(row_count));
  NearestCentroid nearest(centroid_count, dim, metric);
  nearest.set_centroids(centroids);
  nearest.label(rows, row_count, labels.data());
}

std::int64_t k_means(const Half* rows, std::int64_t row_count, std::int64_t dim,
                     const KMeansOptions& options, std::span<float> centroids,
                     std::span<std::int32_t> labels) {
  const std::int64_t count = std::min(options.clusters, row_count);
  if (count == 0) return 0;
  assert(count > 0 && centroids.size() >= static_cast<std::size_t>(count * dim));
  assert(labels.size() >= static_cast<std::size_t>(row_count));
  labels = labels.first(static_cast<std::size_t>(row_count));

  NearestCentroid nearest(count, dim, options.metric);
  draw_rows(rows, row_count, dim, count, options.seed, centroids.data());
  nearest.set_centroids(centroids.data());
  nearest.label(rows, row_count, labels.data());

  std::vector<std::int32_t> before(labels.size());
  for (std::int64_t iteration = 1; iteration <= options.max_iterations; ++iteration) {
    move_centroids(rows, labels, count, dim, centroids.data());
    nearest.set_centroids(centroids.data());
    std::copy(labels.begin(), labels.end(), before.begin());
    nearest.label(rows, row_count, labels.data());
    if (options.stop_when_stable && std::equal(labels.begin(), labels.end(), before.begin())) {
      return iteration;
    }
  }
  return options.max_iterations;
}

}  // namespace kvreplay::kernels
