#include "policies/decide/precision/support/token_features.hpp"

#include <algorithm>
#include <unordered_map>

#include "policies/kernels/elementary.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

/// n times the variance of each token's row of n weights in the last recorded layer, averaged over
/// query heads.
std::vector<double> attention_variance(const TraceReader& trace) {
  const TraceInfo& info = trace.info();
  const TraceLayer layer = trace.load_layer(std::ssize(info.recorded_layers) - 1);
  std::vector<double> result(static_cast<std::size_t>(info.tokens));
  const std::int64_t together = info.queries_per_kv_head();
  std::vector<float> queries(static_cast<std::size_t>(together * info.head_dim));
  std::vector<float> weights(static_cast<std::size_t>(together * info.tokens));
  double prompt_sum = 0;
  for (std::int64_t t = layer.query_start; t < info.tokens; ++t) {
    double sum = 0;
    for (std::int64_t kv = 0; kv < info.kv_heads; ++kv) {
      for (std::int64_t q = 0; q < together; ++q) {
        kernels::to_float(layer.queries.row(kv * together + q, t - layer.query_start),
                          queries.data() + q * info.head_dim, info.head_dim);
      }
      kernels::score(queries.data(), together, layer.keys.head(kv), t + 1, info.head_dim,
                     weights.data(), t + 1);
      for (std::int64_t q = 0; q < together; ++q) {
        float* const row = weights.data() + q * (t + 1);
        kernels::softmax(row, t + 1, static_cast<float>(info.softmax_scale));
        sum += row_variance({row, static_cast<std::size_t>(t + 1)});
      }
    }
    result[static_cast<std::size_t>(t)] = sum / static_cast<double>(info.query_heads);
    if (t < info.prompt_tokens) prompt_sum += result[static_cast<std::size_t>(t)];
  }
  if (const std::int64_t rows = info.prompt_tokens - layer.query_start; rows > 0) {
    std::fill_n(result.begin(), layer.query_start, prompt_sum / static_cast<double>(rows));
  }
  return result;
}

}  // namespace

std::vector<double> token_rarity(std::span<const std::int32_t> ids) {
  std::unordered_map<std::int32_t, std::int64_t> counts;
  std::vector<double> result;
  result.reserve(ids.size());
  for (std::size_t seen = 0; seen < ids.size(); ++seen) {
    const auto distinct = static_cast<double>(counts.size());
    std::int64_t& count = counts[ids[seen]];
    result.push_back(-kernels::ln((static_cast<double>(count) + 1) /
                                  (static_cast<double>(seen) + distinct + 1)));
    ++count;
  }
  return result;
}

double row_variance(std::span<const float> weights) {
  double squares = 0;
  for (const float weight : weights) {
    squares += static_cast<double>(weight) * static_cast<double>(weight);
  }
  return squares - 1 / static_cast<double>(weights.size());
}

const TokenFeatures& TraceTokenFeatures::features() const {
  std::call_once(once_, [this] {
    const std::vector<float> entropy = trace_.token_statistic("entropy");
    const std::vector<float> confidence = trace_.token_statistic("top_probability");
    const std::vector<double> rarities = token_rarity(trace_.token_ids());
    const std::vector<double> variance = attention_variance(trace_);
    for (std::size_t t = 0; t < entropy.size(); ++t) {
      features_.rows.push_back({entropy[t], rarities[t], variance[t], confidence[t]});
    }
  });
  return features_;
}

}  // namespace kvreplay
