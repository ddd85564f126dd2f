#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/kernels/kernels.hpp"
#include "policies/stream.hpp"
#include "sim/base/parameters.hpp"

namespace kvreplay {

/// The keys of tokens [begin, end) as rows of one matrix, [tokens, kv_heads * head_dim]: a view of
/// the trace for a stream of one KV head, a copy with the heads side by side for a joint stream.
class KeyRows {
 public:
  KeyRows(const Entries& entries, Token begin, Token end);

  [[nodiscard]] const Half* data() const { return data_; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t dim() const { return dim_; }

 private:
  std::vector<Half> copy_;
  const Half* data_ = nullptr;
  std::int64_t rows_;
  std::int64_t dim_;
};

/// Clusters of consecutive tokens, by number of the cluster. One that took no token is left out.
struct Clusters {
  std::vector<std::vector<Token>> members;  ///< ascending within a cluster
  std::vector<float> centroids;             ///< [members.size(), kv_heads * head_dim]
};

/// k-means over the keys of tokens [begin, end).
[[nodiscard]] Clusters cluster_tokens(const Entries& entries, Token begin, Token end,
                                      const kernels::KMeansOptions& options);

/// The "metric" parameter of clustering parts.
[[nodiscard]] Parameter metric_parameter(std::string default_metric);
[[nodiscard]] kernels::Metric metric_of(const Arguments& arguments);

}  // namespace kvreplay
