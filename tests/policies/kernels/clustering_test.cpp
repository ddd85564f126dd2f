#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/policies/kernels/support.hpp"

namespace kvreplay::kernels {
namespace {

constexpr Metric kMetrics[] = {Metric::kCosine, Metric::kEuclidean, Metric::kInnerProduct};

/// The comparison that assign() promises, one pair at a time: a chain of fused multiply-adds in the
/// order of the dimensions with the centroid (scaled to length 1 for cosine), minus half its square
/// length for Euclidean.
std::int32_t nearest(const float* row, const std::vector<float>& centroids, std::int64_t dim,
                     Metric metric) {
  const auto count = static_cast<std::int64_t>(centroids.size()) / dim;
  float best_score = -std::numeric_limits<float>::infinity();
  std::int32_t best = 0;
  for (std::int32_t c = 0; c < count; ++c) {
    const float* centroid = centroids.data() + c * dim;
    const float square = dot(centroid, centroid, dim);
    float factor = 1.0f;
    if (metric == Metric::kCosine) factor = square > 0.0f ? 1.0f / std::sqrt(square) : 0.0f;
    float score = 0.0f;
    for (std::int64_t d = 0; d < dim; ++d) score = std::fma(row[d], centroid[d] * factor, score);
    if (metric == Metric::kEuclidean) score -= 0.5f * square;
    if (score > best_score) {
      best_score = score;
      best = c;
    }
  }
  return best;
}

std::vector<std::int32_t> nearest_of_all(const std::vector<Half>& rows,
                                         const std::vector<float>& centroids, std::int64_t dim,
                                         Metric metric) {
  std::vector<float> row(at(dim));
  std::vector<std::int32_t> labels;
  for (std::size_t first = 0; first < rows.size(); first += at(dim)) {
    for (std::size_t d = 0; d < row.size(); ++d) row[d] = kvreplay::to_float(rows[first + d]);
    labels.push_back(nearest(row.data(), centroids, dim, metric));
  }
  return labels;
}

struct Clustering {
  std::vector<float> centroids;
  std::vector<std::int32_t> labels;
  std::int64_t iterations = 0;
};

/// Lloyd's algorithm from the given centroids.
Clustering naive_lloyd(const std::vector<Half>& rows, std::int64_t dim,
                       std::vector<float> centroids, const KMeansOptions& options) {
  Clustering result{std::move(centroids), {}, 0};
  result.labels = nearest_of_all(rows, result.centroids, dim, options.metric);
  while (result.iterations < options.max_iterations) {
    for (std::int64_t c = 0; c * dim < static_cast<std::int64_t>(result.centroids.size()); ++c) {
      const auto size = std::count(result.labels.begin(), result.labels.end(), c);
      if (size == 0) continue;
      for (std::int64_t d = 0; d < dim; ++d) {
        float sum = 0.0f;
        for (std::size_t n = 0; n < result.labels.size(); ++n) {
          if (result.labels[n] == c) sum += kvreplay::to_float(rows[n * at(dim) + at(d)]);
        }
        result.centroids[at(c * dim + d)] = sum / static_cast<float>(size);
      }
    }
    const std::vector<std::int32_t> before = result.labels;
    result.labels = nearest_of_all(rows, result.centroids, dim, options.metric);
    ++result.iterations;
    if (options.stop_when_stable && result.labels == before) break;
  }
  return result;
}

Clustering run(const std::vector<Half>& rows, std::int64_t dim, const KMeansOptions& options) {
  const auto row_count = static_cast<std::int64_t>(rows.size()) / dim;
  const std::int64_t clusters = std::min(options.clusters, row_count);
  Clustering result{std::vector<float>(at(clusters * dim)),
                    std::vector<std::int32_t>(at(row_count)), 0};
  result.iterations =
      k_means(rows.data(), row_count, dim, options, result.centroids, result.labels);
  return result;
}

/// k_means on every instruction set against the naive one from the same start.
void expect_lloyd(const std::vector<Half>& rows, std::int64_t dim, const KMeansOptions& options,
                  const std::string& what) {
  KMeansOptions start = options;
  start.max_iterations = 0;
  const Clustering expected = naive_lloyd(rows, dim, run(rows, dim, start).centroids, options);
  for (const Isa isa : available_isas()) {
    const WithIsa with(isa);
    const Clustering actual = run(rows, dim, options);
    ASSERT_EQ(actual.labels, expected.labels) << what << " " << isa_name(isa);
    ASSERT_EQ(bits_of(actual.centroids), bits_of(expected.centroids))
        << what << " " << isa_name(isa);
    ASSERT_EQ(actual.iterations, expected.iterations) << what << " " << isa_name(isa);
  }
}

/// Rows around `centres` points, away from the origin as keys are.
std::vector<Half> blobs(std::int64_t rows, std::int64_t dim, std::int64_t centres,
                        std::uint64_t seed) {
  const std::vector<float> centre = random_floats(centres * dim, seed, 1.0);
  Random random(seed + 1);
  std::vector<Half> result;
  for (std::int64_t n = 0; n < rows; ++n) {
    const auto pick = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(centres)));
    for (std::int64_t d = 0; d < dim; ++d) {
      result.push_back(kvreplay::to_half(centre[at(pick * dim + d)] + 0.5f * random_float(random)));
    }
  }
  return result;
}

TEST(Assign, IsTheNearestCentroidAtEverySize) {
  for (const Metric metric : kMetrics) {
    for (const std::int64_t dim : {1, 3, 8, 16, 17, 64, 100}) {
      for (const std::int64_t rows : {1, 2, 5, 6, 7, 8, 9, 17, 33}) {
        for (const std::int64_t count : {1, 2, 15, 16, 17, 31, 32, 33, 49, 65}) {
          const std::vector<Half> row = random_halves(rows * dim, 31, 0.5);
          const std::vector<float> centroids = random_floats(count * dim, 32, 0.5);
          const std::vector<std::int32_t> expected = nearest_of_all(row, centroids, dim, metric);
          for (const Isa isa : available_isas()) {
            const WithIsa with(isa);
            std::vector<std::int32_t> labels(at(rows), -1);
            assign(row.data(), rows, centroids.data(), count, dim, metric, labels);
            ASSERT_EQ(labels, expected)
                << isa_name(isa) << " " << rows << " x " << count << " x " << dim;
          }
        }
      }
    }
  }
}

TEST(Assign, AgreesWithDistancesInDouble) {
  const std::int64_t dim = 24;
  const std::int64_t count = 40;
  const std::vector<Half> rows = random_halves(300 * dim, 33, 0.3);
  const std::vector<float> centroids = random_floats(count * dim, 34, 0.3);
  for (const Metric metric : kMetrics) {
    std::vector<std::int32_t> labels(300);
    assign(rows.data(), 300, centroids.data(), count, dim, metric, labels);
    for (std::int64_t n = 0; n < 300; ++n) {
      std::vector<double> closeness;
      for (std::int64_t c = 0; c < count; ++c) {
        double product = 0.0;
        double square = 0.0;
        double distance = 0.0;
        for (std::int64_t d = 0; d < dim; ++d) {
          const double x = kvreplay::to_float(rows[at(n * dim + d)]);
          const double y = centroids[at(c * dim + d)];
          product += x * y;
          square += y * y;
          distance += (x - y) * (x - y);
        }
        if (metric == Metric::kCosine) closeness.push_back(product / std::sqrt(square));
        if (metric == Metric::kEuclidean) closeness.push_back(-0.5 * distance);
        if (metric == Metric::kInnerProduct) closeness.push_back(product);
      }
      const double best = *std::max_element(closeness.begin(), closeness.end());
      EXPECT_NEAR(closeness[at(labels[at(n)])], best, 1e-4);
    }
  }
}

TEST(Assign, TiesGoToTheLowerCentroid) {
  const std::int64_t dim = 4;
  const std::vector<Half> rows = random_halves(20 * dim, 35);
  std::vector<float> centroids;
  for (int c = 0; c < 70; ++c) centroids.insert(centroids.end(), {1.0f, 2.0f, 3.0f, 4.0f});
  for (const Metric metric : kMetrics) {
    for (const Isa isa : available_isas()) {
      const WithIsa with(isa);
      std::vector<std::int32_t> labels(20, -1);
      assign(rows.data(), 20, centroids.data(), 70, dim, metric, labels);
      EXPECT_EQ(labels, std::vector<std::int32_t>(20, 0)) << isa_name(isa);
    }
  }
}

TEST(Assign, ACentroidOfLengthZeroHasCosineZero) {
  const std::vector<Half> rows{kvreplay::to_half(1.0f), kvreplay::to_half(-1.0f)};
  const std::vector<float> centroids{0.0f, 3.0f};
  std::vector<std::int32_t> labels(2);
  assign(rows.data(), 2, centroids.data(), 2, 1, Metric::kCosine, labels);
  EXPECT_EQ(labels, (std::vector<std::int32_t>{1, 0}));
}

TEST(KMeans, MatchesTheNaiveAlgorithmBitForBit) {
  for (const Metric metric : kMetrics) {
    for (const std::int64_t dim : {1, 5, 16, 33, 64}) {
      for (const std::int64_t clusters : {1, 2, 7, 16, 17, 40}) {
        const KMeansOptions options{metric, clusters, 10, true, 36};
        expect_lloyd(blobs(150, dim, 12, 37), dim, options,
                     "dim " + std::to_string(dim) + " clusters " + std::to_string(clusters));
      }
    }
  }
}

// Above 32 clusters, bounds rule out panels of centroids.

TEST(KMeans, BoundsRuleOutNoNearestCentroid) {
  struct Shape {
    std::int64_t rows;
    std::int64_t dim;
    std::int64_t clusters;
    std::int64_t centres;
  };
  // More rows than a block, and a last block and panel that are not full.
  for (const Metric metric : kMetrics) {
    for (const Shape& shape : {Shape{700, 24, 70, 40}, Shape{513, 64, 200, 200},
                               Shape{1000, 3, 49, 5}, Shape{300, 128, 33, 1}}) {
      const KMeansOptions options{metric, shape.clusters, 40, true, 46};
      expect_lloyd(
          blobs(shape.rows, shape.dim, shape.centres, 47), shape.dim, options,
          std::to_string(shape.rows) + " rows, " + std::to_string(shape.clusters) + " clusters");
    }
  }
}

TEST(KMeans, BoundsKeepTies) {
  // Rows on a coarse grid: many have several nearest centroids, and many are equal.
  Random random(48);
  std::vector<Half> rows;
  for (int i = 0; i < 600 * 2; ++i) {
    rows.push_back(kvreplay::to_half(static_cast<float>(random.below(6)) - 2.0f));
  }
  for (const Metric metric : kMetrics) {
    expect_lloyd(rows, 2, {metric, 60, 30, true, 49}, "grid");
  }
}

TEST(KMeans, BoundsHoldAtEveryMagnitude) {
  for (const float scale : {1e-6f, 1e-3f, 500.0f}) {
    std::vector<Half> rows = blobs(400, 16, 30, 50);
    for (Half& row : rows) row = kvreplay::to_half(kvreplay::to_float(row) * scale);
    for (const Metric metric : kMetrics) {
      expect_lloyd(rows, 16, {metric, 48, 20, false, 51}, "scaled");
    }
  }
}

TEST(KMeans, DuplicatesAndEmptyClusters) {
  // There are five distinct rows among forty: most of the twenty centroids coincide, and all but
  // the first of these are empty.
  const std::int64_t dim = 6;
  const std::vector<Half> distinct = random_halves(5 * dim, 38);
  std::vector<Half> rows;
  for (int i = 0; i < 8; ++i) rows.insert(rows.end(), distinct.begin(), distinct.end());
  for (const Metric metric : kMetrics) {
    const KMeansOptions options{metric, 20, 5, true, 39};
    expect_lloyd(rows, dim, options, "duplicates");
    const Clustering result = run(rows, dim, options);
    EXPECT_LE(std::set<std::int32_t>(result.labels.begin(), result.labels.end()).size(), 5u);
  }
}

TEST(KMeans, ClustersAreCutToTheRows) {
  const std::int64_t dim = 8;
  const std::vector<Half> rows = random_halves(5 * dim, 40);
  const KMeansOptions options{Metric::kEuclidean, 9, 10, true, 41};
  expect_lloyd(rows, dim, options, "more clusters than rows");
  const Clustering result = run(rows, dim, options);
  EXPECT_EQ(std::set<std::int32_t>(result.labels.begin(), result.labels.end()).size(), 5u);
  EXPECT_EQ(result.iterations, 1);
}

TEST(KMeans, StartsFromDistinctRowsByTheSeed) {
  const std::int64_t dim = 3;
  const std::vector<Half> rows = random_halves(50 * dim, 42);
  std::vector<float> floats(rows.size());
  to_float(rows.data(), floats.data(), static_cast<std::int64_t>(rows.size()));
  const auto start = [&](std::uint64_t seed) {
    return run(rows, dim, {Metric::kCosine, 20, 0, true, seed}).centroids;
  };
  const std::vector<float> centroids = start(1);
  std::set<std::vector<float>> drawn;
  std::set<std::vector<float>> all;
  for (auto from = centroids.begin(); from != centroids.end(); from += dim) {
    drawn.insert({from, from + dim});
  }
  for (auto from = floats.begin(); from != floats.end(); from += dim)
    all.insert({from, from + dim});
  EXPECT_EQ(drawn.size(), 20u);
  EXPECT_TRUE(std::includes(all.begin(), all.end(), drawn.begin(), drawn.end()));
  EXPECT_EQ(start(1), centroids);
  EXPECT_NE(start(2), centroids);
}

TEST(KMeans, RunsOnWhenToldNotToStop) {
  const std::int64_t dim = 4;
  const std::vector<Half> rows = blobs(60, dim, 3, 43);
  EXPECT_LT(run(rows, dim, {Metric::kEuclidean, 3, 50, true, 44}).iterations, 50);
  EXPECT_EQ(run(rows, dim, {Metric::kEuclidean, 3, 50, false, 44}).iterations, 50);
  EXPECT_EQ(run(rows, dim, {Metric::kEuclidean, 3, 0, true, 44}).iterations, 0);
}

}  // namespace
}  // namespace kvreplay::kernels
