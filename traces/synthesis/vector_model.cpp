// By hand, Cholesky too: a seed means the same bytes whatever the version of a library.

#include "traces/synthesis/vector_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvreplay {
namespace {

constexpr std::int64_t kRounds = 12;
constexpr std::int64_t kMinClusters = 8;
constexpr std::int64_t kMaxClusters = 64;
constexpr double kWorthwhile = 0.97;
/// Weight of the noise of all clusters in the noise of one, in rows.
constexpr double kScalePriorRows = 8;
/// Added to the diagonal, as a share of its mean: covariances from few rows are singular.
constexpr double kRidge = 1e-4;

std::int64_t rows_of(RowView rows) {
  return static_cast<std::int64_t>(rows.values.size()) / rows.dim;
}

double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum;
}

/// Means of the rows of each label; `fallback` where a label has none.
std::vector<float> label_means(RowView rows, std::span<const std::int64_t> labels,
                               std::int64_t clusters, std::span<const float> prior,
                               double prior_rows) {
  const auto dim = static_cast<std::size_t>(rows.dim);
  std::vector<double> sums(static_cast<std::size_t>(clusters) * dim);
  std::vector<double> counts(static_cast<std::size_t>(clusters), prior_rows);
  for (std::size_t cluster = 0; cluster < counts.size(); ++cluster) {
    for (std::size_t i = 0; i < dim; ++i) {
      sums[cluster * dim + i] = prior_rows * static_cast<double>(prior[i]);
    }
  }
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const auto cluster = static_cast<std::size_t>(labels[row]);
    counts[cluster] += 1;
    const std::span<const float> values = rows.row(static_cast<std::int64_t>(row));
    for (std::size_t i = 0; i < dim; ++i) {
      sums[cluster * dim + i] += static_cast<double>(values[i]);
    }
  }
  std::vector<float> means(sums.size());
  for (std::size_t cluster = 0; cluster < counts.size(); ++cluster) {
    for (std::size_t i = 0; i < dim; ++i) {
      means[cluster * dim + i] = counts[cluster] > 0
                                     ? static_cast<float>(sums[cluster * dim + i] / counts[cluster])
                                     : prior[i];
    }
  }
  return means;
}

std::vector<float> mean_of(RowView rows) {
  const std::vector<std::int64_t> one(static_cast<std::size_t>(rows_of(rows)), 0);
  const std::vector<float> zero(static_cast<std::size_t>(rows.dim), 0);
  return label_means(rows, one, 1, zero, 0);
}

/// Lower-triangular F with F F^T = `matrix` (symmetric, positive definite), in place.
void factorise(std::vector<double>& matrix, std::size_t dim) {
  for (std::size_t column = 0; column < dim; ++column) {
    for (std::size_t row = column; row < dim; ++row) {
      double sum = matrix[row * dim + column];
      for (std::size_t k = 0; k < column; ++k)
        sum -= matrix[row * dim + k] * matrix[column * dim + k];
      matrix[row * dim + column] =
          row == column ? std::sqrt(std::max(sum, 1e-12)) : sum / matrix[column * dim + column];
    }
    for (std::size_t row = 0; row < column; ++row) matrix[row * dim + column] = 0;
  }
}

Clustering lloyd(RowView rows, std::int64_t clusters, Random& random) {
  const std::int64_t count = rows_of(rows);
  const auto dim = static_cast<std::size_t>(rows.dim);
  std::vector<float> centres;
  for (std::int64_t cluster = 0; cluster < clusters; ++cluster) {
    // Takes one from each stretch of the text: no two the same.
    const std::int64_t begin = cluster * count / clusters;
    const std::int64_t end = (cluster + 1) * count / clusters;
    const auto offset = static_cast<std::int64_t>(
        random.below(static_cast<std::uint64_t>(std::max<std::int64_t>(1, end - begin))));
    const std::span<const float> row = rows.row(std::min(begin + offset, count - 1));
    centres.insert(centres.end(), row.begin(), row.end());
  }
  Clustering found{.clusters = clusters,
                   .labels = std::vector<std::int64_t>(static_cast<std::size_t>(count))};
  for (std::int64_t round = 0; round < kRounds; ++round) {
    // |x - c|^2 = |x|^2 - 2 x.c + |c|^2, and |x|^2 does not matter.
    std::vector<float> norms;
    for (std::int64_t c = 0; c < clusters; ++c) {
      float norm = 0;
      for (const float x : RowView{centres, rows.dim}.row(c)) norm += x * x;
      norms.push_back(norm);
    }
    for (std::int64_t row = 0; row < count; ++row) {
      const std::span<const float> values = rows.row(row);
      float min_distance = std::numeric_limits<float>::infinity();
      for (std::int64_t c = 0; c < clusters; ++c) {
        const float* centre = centres.data() + static_cast<std::size_t>(c) * dim;
        float sums[4] = {};
        for (std::size_t i = 0; i < dim; ++i) sums[i % 4] += values[i] * centre[i];
        const float distance =
            norms[static_cast<std::size_t>(c)] - 2 * ((sums[0] + sums[1]) + (sums[2] + sums[3]));
        if (distance < min_distance) {
          min_distance = distance;
          found.labels[static_cast<std::size_t>(row)] = c;
        }
      }
    }
    centres = label_means(rows, found.labels, clusters, mean_of(rows), 0);
  }
  const std::vector<float> centre = mean_of(rows);
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t label = found.labels[static_cast<std::size_t>(row)];
    found.within_variance += squared_distance(rows.row(row), RowView{centres, rows.dim}.row(label));
    found.total_variance += squared_distance(rows.row(row), centre);
  }
  found.within_variance /= static_cast<double>(count);
  found.total_variance /= static_cast<double>(count);
  return found;
}

}  // namespace

float near_normal(Random& random) {
  constexpr double kDeviation = 37837.22682;  // of the sum of four uniforms in 0..65535
  const std::uint64_t bits = random.next();
  const std::uint64_t sum =
      (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
  return static_cast<float>((static_cast<double>(sum) - 131070.0) / kDeviation);
}

VectorModel fit_vectors(RowView rows, std::span<const std::int64_t> labels, std::int64_t clusters,
                        double prior_rows) {
  const auto dim = static_cast<std::size_t>(rows.dim);
  VectorModel model;
  model.dim = rows.dim;
  model.means = label_means(rows, labels, clusters, mean_of(rows), prior_rows);

  std::vector<double> squares_of(static_cast<std::size_t>(clusters));
  std::vector<double> rows_in(static_cast<std::size_t>(clusters));
  double all_squares = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const auto cluster = static_cast<std::size_t>(labels[row]);
    const double distance =
        squared_distance(rows.row(static_cast<std::int64_t>(row)), model.mean(labels[row]));
    squares_of[cluster] += distance;
    rows_in[cluster] += 1;
    all_squares += distance;
  }
  const double mean_square = std::max(1e-12, all_squares / static_cast<double>(labels.size()));
  for (std::size_t c = 0; c < rows_in.size(); ++c) {
    const double variance = (squares_of[c] + kScalePriorRows * mean_square) /
                            (rows_in[c] + kScalePriorRows) / mean_square;
    model.scales.push_back(static_cast<float>(std::sqrt(variance)));
  }

  std::vector<double> covariance(dim * dim);
  std::vector<double> noise(dim);
  std::vector<double> previous(dim);
  double product = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const std::span<const float> values = rows.row(static_cast<std::int64_t>(row));
    const std::span<const float> mean = model.mean(labels[row]);
    for (std::size_t i = 0; i < dim; ++i) {
      noise[i] = (static_cast<double>(values[i]) - static_cast<double>(mean[i])) /
                 static_cast<double>(model.scale(labels[row]));
      if (row > 0) product += noise[i] * previous[i];
    }
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j <= i; ++j) covariance[i * dim + j] += noise[i] * noise[j];
    }
    previous = noise;
  }
  for (double& entry : covariance) entry /= static_cast<double>(labels.size());
  for (std::size_t i = 0; i < dim; ++i) model.noise_variance += covariance[i * dim + i];
  const double squares = model.noise_variance * static_cast<double>(labels.size());
  model.correlation = squares > 0 ? std::clamp(product / squares, 0.0, 0.99) : 0;
  for (std::size_t i = 0; i < dim; ++i) {
    covariance[i * dim + i] += kRidge * model.noise_variance / static_cast<double>(dim);
  }
  factorise(covariance, dim);
  model.factor.assign(covariance.begin(), covariance.end());
  return model;
}

void NoiseWalk::add(Random& random, double correlation, float scale, std::span<float> row) {
  const auto keep = static_cast<float>(begun_ ? correlation : 0);
  const auto fresh = static_cast<float>(std::sqrt(1 - (begun_ ? correlation * correlation : 0)));
  begun_ = true;
  for (float& x : state_) x = keep * x + fresh * near_normal(random);
  const std::size_t dim = state_.size();
  for (std::size_t i = 0; i < dim; ++i) {
    const float* factor = model_->factor.data() + i * dim;
    float sums[4] = {};
    for (std::size_t j = 0; j <= i; ++j) sums[j % 4] += factor[j] * state_[j];
    row[i] += scale * ((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
}

Clustering cluster_rows(RowView rows, std::int64_t clusters, Random& random) {
  const std::int64_t count = rows_of(rows);
  if (clusters > 0) return lloyd(rows, std::min(clusters, count), random);
  Clustering best = lloyd(rows, std::min(kMinClusters, count), random);
  while (2 * best.clusters <= std::min(kMaxClusters, count / 8)) {
    Clustering more = lloyd(rows, 2 * best.clusters, random);
    if (more.within_variance > kWorthwhile * best.within_variance) break;
    best = std::move(more);
  }
  return best;
}

}  // namespace kvreplay
