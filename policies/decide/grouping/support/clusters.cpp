#include "policies/decide/grouping/support/clusters.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace kvreplay {

KeyRows::KeyRows(const Entries& entries, std::span<const Token> tokens)
    : rows_(std::ssize(tokens)), dim_(entries.keys.heads * entries.keys.dim) {
  const HalfTensor& keys = entries.keys;
  if (tokens.empty()) return;
  assert(std::is_sorted(tokens.begin(), tokens.end()) && tokens.back() < keys.tokens);
  if (keys.heads == 1 && tokens.back() - tokens.front() + 1 == rows_) {
    data_ = keys.row(0, tokens.front());
    return;
  }
  copy_.resize(static_cast<std::size_t>(rows_ * dim_));
  Half* to = copy_.data();
  for (const Token token : tokens) {
    for (std::int64_t head = 0; head < keys.heads; ++head) {
      to = std::copy_n(keys.row(head, token), keys.dim, to);
    }
  }
  data_ = copy_.data();
}

Clusters cluster_tokens(const Entries& entries, std::span<const Token> tokens,
                        const kernels::KMeansOptions& options) {
  const KeyRows rows(entries, tokens);
  const std::int64_t count = std::min(options.clusters, rows.rows());
  Clusters clusters;
  if (count == 0) return clusters;

  std::vector<float> centroids(static_cast<std::size_t>(count * rows.dim()));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(rows.rows()));
  const std::int64_t iterations =
      kernels::k_means(rows.data(), rows.rows(), rows.dim(), options, centroids, labels);
  const std::int64_t elements = (iterations + 1) * rows.rows() * rows.dim();
  clusters.work = {.flops = elements,
                   .square_flops = 2 * count * elements,
                   .bytes = 2 * elements,
                   .similarities = count * (iterations + 1) * rows.rows(),
                   .whole_prompt = true};

  std::vector<std::vector<Token>> members(static_cast<std::size_t>(count));
  for (std::size_t row = 0; row < labels.size(); ++row) {
    members[static_cast<std::size_t>(labels[row])].push_back(tokens[row]);
  }
  for (std::size_t cluster = 0; cluster < members.size(); ++cluster) {
    if (members[cluster].empty()) continue;
    const auto centroid = centroids.begin() + static_cast<std::ptrdiff_t>(cluster) * rows.dim();
    clusters.members.push_back(std::move(members[cluster]));
    clusters.centroids.insert(clusters.centroids.end(), centroid, centroid + rows.dim());
  }
  return clusters;
}

std::int32_t nearest_cluster(const KeyRows& row, std::span<const float> centroids,
                             kernels::Metric metric) {
  std::int32_t nearest = 0;
  kernels::assign(row.data(), 1, centroids.data(), std::ssize(centroids) / row.dim(), row.dim(),
                  metric, {&nearest, 1});
  return nearest;
}

void join_nearest(const Entries& entries, Token token, GroupId first, kernels::Metric metric,
                  std::vector<float>& centroids, const Groups& groups, EventSink& events) {
  const KeyRows row(entries, {&token, 1});
  const std::int64_t dim = row.dim();
  std::vector<std::int32_t> live;
  for (std::int32_t i = 0; i < std::ssize(centroids) / dim; ++i) {
    if (groups.live(first + i)) live.push_back(i);
  }
  if (live.empty()) {
    const std::size_t end = centroids.size();
    centroids.resize(end + static_cast<std::size_t>(dim));
    kernels::to_float(row.data(), centroids.data() + end, dim);
    events.on_event({EventKind::kCreated, groups.count(), kNoGroup, {&token, 1}});
    return;
  }
  std::int32_t nearest = 0;
  if (std::ssize(live) * dim == std::ssize(centroids)) {
    nearest = nearest_cluster(row, centroids, metric);
  } else {
    std::vector<float> rows;
    for (const std::int32_t i : live) {
      const auto from = centroids.begin() + i * dim;
      rows.insert(rows.end(), from, from + dim);
    }
    nearest = live[static_cast<std::size_t>(nearest_cluster(row, rows, metric))];
  }
  events.on_event({EventKind::kAppended, first + nearest, kNoGroup, {&token, 1}});
}

Moments::Moments(const Entries& entries, std::span<const Token> tokens)
    : Moments(entries.keys.heads * entries.keys.dim) {
  std::vector<float> key(mean_.size());
  for (const Token token : tokens) {
    for (std::int64_t head = 0; head < entries.keys.heads; ++head) {
      kernels::to_float(entries.keys.row(head, token), key.data() + head * entries.keys.dim,
                        entries.keys.dim);
    }
    add(key);
  }
}

void Moments::add(std::span<const float> key) {
  squares_ = squares_with(key);
  ++count_;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    mean_[i] += (static_cast<double>(key[i]) - mean_[i]) / static_cast<double>(count_);
  }
}

double Moments::variance() const {
  return count_ == 0 ? 0 : squares_ / static_cast<double>(count_);
}

double Moments::variance_with(std::span<const float> key) const {
  return squares_with(key) / static_cast<double>(count_ + 1);
}

double Moments::squares_with(std::span<const float> key) const {
  double distance = 0;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const double difference = static_cast<double>(key[i]) - mean_[i];
    distance += difference * difference;
  }
  const auto count = static_cast<double>(count_);
  return squares_ + distance * count / (count + 1);
}

std::vector<Token> token_range(Token begin, Token end) {
  std::vector<Token> tokens(static_cast<std::size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

std::int64_t prompt_clusters(std::int64_t clusters, std::int64_t tokens,
                             std::int64_t tokens_per_cluster) {
  return clusters > 0 ? clusters : std::max<std::int64_t>(1, tokens / tokens_per_cluster);
}

Parameter metric_parameter(std::string default_metric) {
  return choice_parameter("metric", {"cosine", "euclidean", "inner_product"},
                          std::move(default_metric),
                          "how the distance of a key from a centroid is measured");
}

kernels::Metric metric_of(const Arguments& arguments) {
  const std::string& name = arguments.text("metric");
  if (name == "euclidean") return kernels::Metric::kEuclidean;
  if (name == "inner_product") return kernels::Metric::kInnerProduct;
  return kernels::Metric::kCosine;
}

}  // namespace kvreplay
