#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/parameters.hpp"
#include "policies/decide/log/groups.hpp"
#include "policies/decide/log/prompt_work.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {

/// The keys of some tokens as rows of one matrix, [tokens, kv_heads * head_dim]: a view of the
/// trace where they are neighbours in a stream of one KV head; otherwise a copy, with the heads of
/// a joint stream side by side.
class KeyRows {
 public:
  KeyRows(const Entries& entries, std::span<const Token> tokens);

  [[nodiscard]] const Half* data() const { return data_; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t dim() const { return dim_; }

 private:
  std::vector<Half> copy_;
  const Half* data_ = nullptr;
  std::int64_t rows_;
  std::int64_t dim_;
};

/// Clusters of consecutive tokens, by cluster number. Clusters without tokens are left out.
struct Clusters {
  std::vector<std::vector<Token>> members;  ///< ascending within a cluster
  std::vector<float> centroids;             ///< [members.size(), kv_heads * head_dim]
  /// Of clusters whose number grows with the tokens: an iteration compares every key with every
  /// centroid, and adds every key to one.
  PromptWork work;
};

/// Runs k-means over the keys of `tokens`, which are in ascending order.
[[nodiscard]] Clusters cluster_tokens(const Entries& entries, std::span<const Token> tokens,
                                      const kernels::KMeansOptions& options);

/// The number of the centroid nearest to the first row.
[[nodiscard]] std::int32_t nearest_cluster(const KeyRows& row, std::span<const float> centroids,
                                           kernels::Metric metric);

/// A new token joins the nearest of the clusters that still have members: the event says so.
/// `first` is the group of centroid 0, the others follow. Where all members have been evicted, the
/// token founds a cluster, and `centroids` grows by its key.
void join_nearest(const Entries& entries, Token token, GroupId first, kernels::Metric metric,
                  std::vector<float>& centroids, const Groups& groups, EventSink& events);

/// Number, mean and variance of keys, updated in O(dim) per key (DynaKV 3).
class Moments {
 public:
  explicit Moments(std::int64_t dim) : mean_(static_cast<std::size_t>(dim)) {}
  Moments(const Entries& entries, std::span<const Token> tokens);

  void add(std::span<const float> key);

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::span<const double> mean() const { return mean_; }
  /// Mean squared distance from the mean; 0 without keys.
  [[nodiscard]] double variance() const;
  /// What the variance would be with one more key.
  [[nodiscard]] double variance_with(std::span<const float> key) const;

 private:
  [[nodiscard]] double squares_with(std::span<const float> key) const;

  std::int64_t count_ = 0;
  std::vector<double> mean_;
  double squares_ = 0;  // sum of squared distances from the mean
};

/// The tokens [begin, end).
[[nodiscard]] std::vector<Token> token_range(Token begin, Token end);
/// How many clusters the prompt gets: `clusters`, or by size where that is 0; at least 1.
[[nodiscard]] std::int64_t prompt_clusters(std::int64_t clusters, std::int64_t tokens,
                                           std::int64_t tokens_per_cluster);

/// The "metric" parameter of clustering parts.
[[nodiscard]] Parameter metric_parameter(std::string default_metric);
[[nodiscard]] kernels::Metric metric_of(const Arguments& arguments);

}  // namespace kvreplay
