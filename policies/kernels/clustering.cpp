// By hand: k-means is to give the same bits on every instruction set.

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "policies/kernels/dispatch.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay::kernels {
namespace {

constexpr std::int64_t kPanelWidth = 16;

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// Centroids in panels of sixteen, in an order of ours. Every metric is expressed as "the largest
/// row . c' + bias":
///   cosine         c' = c / |c| (0 where |c| = 0),  bias = 0
///   Euclidean      c' = c,                          bias = -|c|^2 / 2   (|row|^2 does not matter)
///   inner product  c' = c,                          bias = 0
class CentroidPanels {
 public:
  /// The centroids in their own order.
  CentroidPanels(std::int64_t centroid_count, std::int64_t dim, Metric metric)
      : count_(centroid_count),
        panel_count_((centroid_count + kPanelWidth - 1) / kPanelWidth),
        dim_(dim),
        metric_(metric),
        panels_(at(panel_count_ * dim * kPanelWidth)),
        bias_(at(panel_count_ * kPanelWidth), -std::numeric_limits<float>::infinity()),
        numbers_(at(panel_count_ * kPanelWidth)) {
    std::iota(numbers_.begin(), numbers_.end(), 0);
  }

  /// order: the centroid at each place; the last panel may be incomplete.
  void set_order(std::span<const std::int32_t> order) {
    std::copy(order.begin(), order.end(), numbers_.begin());
  }

  /// centroids: [count, dim].
  void set_centroids(const float* centroids) {
    for (std::int64_t place = 0; place < count_; ++place) {
      const float* centroid = centroids + numbers_[at(place)] * dim_;
      const float square = table().dot(centroid, centroid, dim_);
      float factor = 1.0f;
      if (metric_ == Metric::kCosine) factor = square > 0.0f ? 1.0f / std::sqrt(square) : 0.0f;
      float* lane = panels_.data() + place_of(place);
      for (std::int64_t d = 0; d < dim_; ++d) lane[d * kPanelWidth] = centroid[d] * factor;
      bias_[at(place)] = metric_ == Metric::kEuclidean ? -0.5f * square : 0.0f;
    }
  }

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t panel_count() const { return panel_count_; }
  [[nodiscard]] std::int32_t number(std::int64_t place) const { return numbers_[at(place)]; }
  [[nodiscard]] float bias(std::int64_t place) const { return bias_[at(place)]; }
  [[nodiscard]] float element(std::int64_t place, std::int64_t d) const {
    return panels_[at(place_of(place) + d * kPanelWidth)];
  }
  [[nodiscard]] PackedCentroids packed() const {
    return {panels_.data(), bias_.data(), panel_count_, dim_, numbers_.data()};
  }

 private:
  [[nodiscard]] std::int64_t place_of(std::int64_t place) const {
    return place / kPanelWidth * dim_ * kPanelWidth + place % kPanelWidth;
  }

  std::int64_t count_;
  std::int64_t panel_count_;
  std::int64_t dim_;
  Metric metric_;
  std::vector<float> panels_;
  std::vector<float> bias_;
  std::vector<std::int32_t> numbers_;
};

/// The nearest centroid of each row, by comparing it with all of them.
void label_all(const Half* rows, std::int64_t row_count, std::int64_t dim,
               const CentroidPanels& panels, std::int32_t* labels) {
  std::vector<float> scratch(at(kScratchRows * dim));
  table().nearest(rows, row_count, panels.packed(), scratch.data(), labels);
}

/// An order of the centroids in which those of a panel are near each other: halves, again and
/// again, along the line between two points that are far apart.
class PanelOrder {
 public:
  PanelOrder(const float* centroids, std::int64_t count, std::int64_t dim)
      : centroids_(centroids), dim_(dim), order_(at(count)), along_(at(count)) {
    std::iota(order_.begin(), order_.end(), 0);
    split(0, count);
  }
  [[nodiscard]] std::span<const std::int32_t> order() const { return order_; }

 private:
  [[nodiscard]] const float* point(std::int64_t place) const {
    return centroids_ + order_[at(place)] * dim_;
  }

  [[nodiscard]] std::int32_t farthest(std::int64_t begin, std::int64_t end,
                                      const float* from) const {
    double most = -1;
    std::int32_t farthest = order_[at(begin)];
    for (std::int64_t i = begin; i < end; ++i) {
      double square = 0;
      for (std::int64_t d = 0; d < dim_; ++d) {
        const double difference = static_cast<double>(point(i)[d]) - static_cast<double>(from[d]);
        square += difference * difference;
      }
      if (square > most) {
        most = square;
        farthest = order_[at(i)];
      }
    }
    return farthest;
  }

  void split(std::int64_t begin, std::int64_t end) {
    const std::int64_t panels = (end - begin + kPanelWidth - 1) / kPanelWidth;
    if (panels <= 1) return;
    const float* first = centroids_ + farthest(begin, end, point(begin)) * dim_;
    const float* second = centroids_ + farthest(begin, end, first) * dim_;
    std::vector<float> line(at(dim_));
    for (std::int64_t d = 0; d < dim_; ++d) line[at(d)] = second[d] - first[d];
    for (std::int64_t i = begin; i < end; ++i) {
      along_[at(order_[at(i)])] = table().dot(point(i), line.data(), dim_);
    }
    const std::int64_t middle = begin + panels / 2 * kPanelWidth;
    std::nth_element(order_.begin() + begin, order_.begin() + middle, order_.begin() + end,
                     [&](std::int32_t a, std::int32_t b) {
                       return along_[at(a)] != along_[at(b)] ? along_[at(a)] < along_[at(b)]
                                                             : a < b;
                     });
    split(begin, middle);
    split(middle, end);
  }

  const float* centroids_;
  std::int64_t dim_;
  std::vector<std::int32_t> order_;
  std::vector<float> along_;  // by centroid
};

/// Labels rows again and again while the centroids move, and gives the labels that comparing each
/// row with every centroid gives. A row is compared with its own panel, and with another one only
/// where a bound of that panel's scores does not rule it out (as Yinyang k-means does for groups of
/// centroids: Ding et al., ICML 2015).
///
/// When c' and bias move to c' + D and bias + b, the score of a row r changes by
///   r . D + b = (m . D + b) + (r - m) . D  <=  (m . D + b) + |r - m| |D|,    m: the rows' mean.
/// The sum is taken for the exact scores of the numbers as stored; `error` bounds what the computed
/// ones are off by, so that a panel that is ruled out has no centroid whose computed score reaches
/// the best one.
class PrunedLabels {
 public:
  /// Rows whose bounds of all panels are checked in turn.
  static constexpr std::int64_t kBlock = 256;
  static constexpr std::int64_t kFewestPanels = 3;
  static constexpr std::int64_t kMostBoundBytes = std::int64_t{256} << 20;

  /// Whether bounds pay: fewer panels have little to rule out, and more need too much memory.
  [[nodiscard]] static bool suits(std::int64_t row_count, std::int64_t centroid_count) {
    const std::int64_t panels = (centroid_count + kPanelWidth - 1) / kPanelWidth;
    return panels >= kFewestPanels &&
           row_count * panels * static_cast<std::int64_t>(sizeof(float)) <= kMostBoundBytes;
  }

  PrunedLabels(const Half* rows, std::int64_t row_count, std::int64_t dim, Metric metric,
               const float* centroids, std::int64_t centroid_count)
      : rows_(rows),
        row_count_(row_count),
        dim_(dim),
        now_(centroid_count, dim, metric),
        block_count_((row_count + kBlock - 1) / kBlock),
        panel_of_(at(centroid_count)),
        norms_(at(row_count)),
        radii_(at(block_count_ * kBlock), 0.0f),
        bounds_(at(block_count_ * now_.panel_count() * kBlock),
                std::numeric_limits<float>::infinity()),
        drift_(at(now_.panel_count())),
        floats_(at(kBlock * dim)) {
    now_.set_order(PanelOrder(centroids, centroid_count, dim).order());
    for (std::int64_t place = 0; place < centroid_count; ++place) {
      panel_of_[at(now_.number(place))] = static_cast<std::int32_t>(place / kPanelWidth);
    }
    // Rows beyond the last are never compared.
    for (std::int64_t panel = 0; panel < now_.panel_count(); ++panel) {
      float* const last =
          bounds_.data() + ((block_count_ - 1) * now_.panel_count() + panel) * kBlock;
      std::fill(last + row_count - (block_count_ - 1) * kBlock, last + kBlock,
                -std::numeric_limits<float>::infinity());
    }
    measure_rows();
    now_.set_centroids(centroids);
    before_ = now_;
  }

  /// labels: of the last call, or any.
  void label(const float* centroids, std::int32_t* labels) {
    std::swap(now_, before_);
    now_.set_centroids(centroids);
    measure_drift();
    for (std::int64_t block = 0; block < block_count_; ++block) label_block(block, labels);
  }

 private:
  /// The bounds of a panel rise by offset + slope * |r - m|.
  struct Drift {
    float offset = 0;
    float slope = 0;
  };

  void measure_rows() {
    mean_.assign(at(dim_), 0.0);
    std::vector<float> row(at(dim_));
    for (std::int64_t n = 0; n < row_count_; ++n) {
      to_float(rows_ + n * dim_, row.data(), dim_);
      for (std::int64_t d = 0; d < dim_; ++d) mean_[at(d)] += static_cast<double>(row[at(d)]);
    }
    for (double& element : mean_) element /= static_cast<double>(row_count_);
    for (std::int64_t n = 0; n < row_count_; ++n) {
      to_float(rows_ + n * dim_, row.data(), dim_);
      double square = 0;
      double from_mean = 0;
      for (std::int64_t d = 0; d < dim_; ++d) {
        const auto element = static_cast<double>(row[at(d)]);
        square += element * element;
        from_mean += (element - mean_[at(d)]) * (element - mean_[at(d)]);
      }
      norms_[at(n)] = round_up(std::sqrt(square));
      radii_[at(n)] = round_up(std::sqrt(from_mean));
    }
    const auto end = radii_.begin() + row_count_;
    least_radius_ = *std::min_element(radii_.begin(), end);
    most_radius_ = *std::max_element(radii_.begin(), end);
    most_norm_ = *std::max_element(norms_.begin(), norms_.end());
  }

  /// The next float or the one after it.
  static float round_up(double x) { return static_cast<float>(x * (1 + 0x1p-22)); }

  void measure_drift() {
    double most_norm = 0;
    double most_bias = 0;
    std::vector<std::pair<double, double>> moves;  // m . D + b, |D|
    for (std::int64_t panel = 0; panel < now_.panel_count(); ++panel) {
      const std::int64_t end = std::min((panel + 1) * kPanelWidth, now_.count());
      moves.clear();
      for (std::int64_t place = panel * kPanelWidth; place < end; ++place) {
        double square = 0;
        double moved = 0;
        double along = static_cast<double>(now_.bias(place)) - before_.bias(place);
        for (std::int64_t d = 0; d < dim_; ++d) {
          const double element = now_.element(place, d);
          const double change = element - static_cast<double>(before_.element(place, d));
          square += element * element;
          moved += change * change;
          along += mean_[at(d)] * change;
        }
        most_norm = std::max(most_norm, std::sqrt(square));
        most_bias = std::max(most_bias, std::abs(static_cast<double>(now_.bias(place))));
        moves.emplace_back(along, std::sqrt(moved));
      }
      drift_[at(panel)] = line_above(moves);
    }
    // A chain of dim multiply-adds and one addition, each rounded to 24 bits.
    unit_error_ = static_cast<double>(dim_ + 16) * 0x1p-24;
    most_norm_of_centroids_ = most_norm;
    most_bias_ = most_bias;
    // What the sums of bounds themselves round off.
    const double slack = 0x1p-20 * (static_cast<double>(most_norm_) * most_norm + most_bias);
    for (Drift& drift : drift_) {
      drift.offset = round_up_signed(static_cast<double>(drift.offset) + slack +
                                     0x1p-21 * (std::abs(static_cast<double>(drift.offset)) +
                                                static_cast<double>(drift.slope * most_radius_)));
    }
  }

  static float round_up_signed(double x) { return static_cast<float>(x + std::abs(x) * 0x1p-22); }

  /// The largest of the lines along + moved * radius is convex in the radius: it lies below the
  /// line between its ends.
  [[nodiscard]] Drift line_above(std::span<const std::pair<double, double>> moves) const {
    const auto largest = [&](double radius) {
      double most = -std::numeric_limits<double>::infinity();
      for (const auto& [along, moved] : moves) most = std::max(most, along + moved * radius);
      return most;
    };
    const double left = largest(least_radius_);
    const double right = largest(most_radius_);
    const double width = static_cast<double>(most_radius_) - static_cast<double>(least_radius_);
    if (!(width > 0)) return {round_up_signed(std::max(left, right)), 0.0f};
    const double slope = std::max(0.0, (right - left) / width);
    const double offset = std::max(left - slope * static_cast<double>(least_radius_),
                                   right - slope * static_cast<double>(most_radius_));
    return {round_up_signed(offset), round_up(slope)};
  }

  [[nodiscard]] float error_of(std::int64_t row) const {
    return round_up(unit_error_ * (static_cast<double>(norms_[at(row)]) * most_norm_of_centroids_ +
                                   most_bias_) +
                    1e-37);
  }

  void label_block(std::int64_t block, std::int32_t* labels) {
    const std::int64_t first = block * kBlock;
    const std::int64_t count = std::min(kBlock, row_count_ - first);
    const PackedCentroids packed = now_.packed();
    float* const bounds = bounds_.data() + block * now_.panel_count() * kBlock;
    to_float(rows_ + first * dim_, floats_.data(), count * dim_);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::array<float, kBlock> score;
    std::array<float, kBlock> highest;
    std::array<float, kBlock> error;
    std::array<float, kBlock> least;
    std::array<std::int32_t, kBlock> centroid;
    std::array<std::int32_t, kBlock> own;
    std::array<std::int32_t, kBlock> list;
    score.fill(-kInfinity);
    least.fill(kInfinity);
    centroid.fill(0);
    const NearestSoFar nearest{score.data(), centroid.data(), highest.data()};

    // First each row's own panel: the score there rules out most of the others.
    starts_.assign(at(now_.panel_count() + 1), 0);
    for (std::int64_t i = 0; i < count; ++i) {
      own[at(i)] = panel_of_[at(labels[first + i])];
      ++starts_[at(own[at(i)]) + 1];
    }
    std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
    for (std::int64_t i = 0; i < count; ++i) {
      list[at(starts_[at(own[at(i)])]++)] = static_cast<std::int32_t>(i);
    }
    std::int32_t begin = 0;
    for (std::int64_t panel = 0; panel < now_.panel_count(); ++panel) {
      const std::int32_t end = starts_[at(panel)];  // by now
      table().compare_panel(floats_.data(), list.data() + begin, end - begin, packed, panel,
                            nearest);
      begin = end;
    }
    std::array<float, kBlock> of_own;
    for (std::int64_t i = 0; i < count; ++i) {
      error[at(i)] = error_of(first + i);
      least[at(i)] = score[at(i)] - error[at(i)];
      of_own[at(i)] = highest[at(i)] + error[at(i)];
      bounds[own[at(i)] * kBlock + i] = -kInfinity;
    }

    for (std::int64_t panel = 0; panel < now_.panel_count(); ++panel) {
      float* const bound = bounds + panel * kBlock;
      const Drift drift = drift_[at(panel)];
      const std::int64_t compared =
          table().widen_bounds(bound, radii_.data() + first, least.data(),
                               (count + kPanelWidth - 1) / kPanelWidth * kPanelWidth, drift.offset,
                               drift.slope, list.data());
      table().compare_panel(floats_.data(), list.data(), compared, packed, panel, nearest);
      for (std::int64_t i = 0; i < compared; ++i) {
        const std::size_t row = at(list[at(i)]);
        bound[row] = highest[row] + error[row];
        least[row] = score[row] - error[row];
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      bounds[own[at(i)] * kBlock + i] = of_own[at(i)];
      labels[first + i] = centroid[at(i)];
    }
  }

  const Half* rows_;
  std::int64_t row_count_;
  std::int64_t dim_;
  CentroidPanels now_;
  CentroidPanels before_ = now_;
  std::int64_t block_count_;
  std::vector<std::int32_t> panel_of_;  // by centroid
  std::vector<double> mean_;            // [dim], of the rows
  std::vector<float> norms_;            // by row, rounded up
  std::vector<float> radii_;            // by row: from the mean, rounded up; whole blocks
  float least_radius_ = 0;
  float most_radius_ = 0;
  float most_norm_ = 0;
  std::vector<float> bounds_;  // [blocks, panels, kBlock], of exact scores
  std::vector<Drift> drift_;   // by panel
  double unit_error_ = 0;
  double most_norm_of_centroids_ = 0;
  double most_bias_ = 0;
  std::vector<float> floats_;         // [kBlock, dim]
  std::vector<std::int32_t> starts_;  // of each panel's rows, in a list by own panel
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
  CentroidPanels panels(centroid_count, dim, metric);
  panels.set_centroids(centroids);
  label_all(rows, row_count, dim, panels, labels.data());
}

std::int64_t k_means(const Half* rows, std::int64_t row_count, std::int64_t dim,
                     const KMeansOptions& options, std::span<float> centroids,
                     std::span<std::int32_t> labels) {
  const std::int64_t count = std::min(options.clusters, row_count);
  if (count == 0) return 0;
  assert(count > 0 && centroids.size() >= static_cast<std::size_t>(count * dim));
  assert(labels.size() >= static_cast<std::size_t>(row_count));
  labels = labels.first(static_cast<std::size_t>(row_count));

  CentroidPanels panels(count, dim, options.metric);
  draw_rows(rows, row_count, dim, count, options.seed, centroids.data());
  panels.set_centroids(centroids.data());
  label_all(rows, row_count, dim, panels, labels.data());

  // The first means are far from the rows drawn: bounds start with them.
  std::optional<PrunedLabels> pruned;
  std::vector<std::int32_t> before(labels.size());
  for (std::int64_t iteration = 1; iteration <= options.max_iterations; ++iteration) {
    move_centroids(rows, labels, count, dim, centroids.data());
    std::copy(labels.begin(), labels.end(), before.begin());
    if (PrunedLabels::suits(row_count, count)) {
      if (!pruned) pruned.emplace(rows, row_count, dim, options.metric, centroids.data(), count);
      pruned->label(centroids.data(), labels.data());
    } else {
      panels.set_centroids(centroids.data());
      label_all(rows, row_count, dim, panels, labels.data());
    }
    if (options.stop_when_stable && std::equal(labels.begin(), labels.end(), before.begin())) {
      return iteration;
    }
  }
  return options.max_iterations;
}

}  // namespace kvreplay::kernels
