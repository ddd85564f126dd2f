#include "policies/grouping/clusters.hpp"

#include <algorithm>
#include <cassert>

namespace kvreplay {

KeyRows::KeyRows(const Entries& entries, Token begin, Token end)
    : rows_(end - begin), dim_(entries.keys.heads * entries.keys.dim) {
  const HalfTensor& keys = entries.keys;
  assert(begin <= end && end <= keys.tokens);
  if (keys.heads == 1) {
    data_ = keys.row(0, begin);
    return;
  }
  copy_.resize(static_cast<std::size_t>(rows_ * dim_));
  Half* to = copy_.data();
  for (std::int64_t token = begin; token < end; ++token) {
    for (std::int64_t head = 0; head < keys.heads; ++head) {
      to = std::copy_n(keys.row(head, token), keys.dim, to);
    }
  }
  data_ = copy_.data();
}

Clusters cluster_tokens(const Entries& entries, Token begin, Token end,
                        const kernels::KMeansOptions& options) {
  const KeyRows rows(entries, begin, end);
  const std::int64_t count = std::min(options.clusters, rows.rows());
  Clusters clusters;
  if (count == 0) return clusters;

  std::vector<float> centroids(static_cast<std::size_t>(count * rows.dim()));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(rows.rows()));
  kernels::k_means(rows.data(), rows.rows(), rows.dim(), options, centroids, labels);

  std::vector<std::vector<Token>> members(static_cast<std::size_t>(count));
  for (std::size_t row = 0; row < labels.size(); ++row) {
    members[static_cast<std::size_t>(labels[row])].push_back(begin + static_cast<Token>(row));
  }
  for (std::size_t cluster = 0; cluster < members.size(); ++cluster) {
    if (members[cluster].empty()) continue;
    const auto centroid = centroids.begin() + static_cast<std::ptrdiff_t>(cluster) * rows.dim();
    clusters.members.push_back(std::move(members[cluster]));
    clusters.centroids.insert(clusters.centroids.end(), centroid, centroid + rows.dim());
  }
  return clusters;
}

Parameter metric_parameter(std::string default_metric) {
  return choice_parameter("metric", {"cosine", "euclidean", "inner_product"},
                          std::move(default_metric), "what makes a key near to a centroid");
}

kernels::Metric metric_of(const Arguments& arguments) {
  const std::string& name = arguments.text("metric");
  if (name == "euclidean") return kernels::Metric::kEuclidean;
  if (name == "inner_product") return kernels::Metric::kInnerProduct;
  return kernels::Metric::kCosine;
}

}  // namespace kvreplay
