#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policies/decide/log/stream.hpp"

namespace kvreplay {

/// Sums of a layer's prompt attention over query heads, and over the keys before the window. (ARKV,
/// Eq. 3-5, as its released code computes them)
struct AttentionStatistics {
  double entropy = 0;   ///< - sum over queries and keys of a ln(a + 1e-10)
  double variance = 0;  ///< over the queries, unbiased
  double kurtosis = 0;  ///< fourth moment over the squared variance, which is at least 1e-8
};

/// The attention of the prompt's last queries to the keys before the window: A [query heads,
/// queries, keys], taken from the softmax over all keys, so that rows sum to less than 1.
class AttentionWindow {
 public:
  /// Uses the last `queries` of the prompt's tokens, and keys [0, prompt_tokens - window).
  AttentionWindow(std::int64_t query_heads, std::int64_t queries, std::int64_t prompt_tokens,
                  std::int64_t window);

  /// weights: those of `tokens`, ascending. Queries before the window's are ignored.
  void take(std::int64_t query_head, Token position, std::span<const Token> tokens,
            std::span<const float> weights);

  [[nodiscard]] AttentionStatistics statistics() const;
  /// Per key: mean + variance_weight * variance over the queries, averaged over the query heads.
  /// (Eq. 9)
  [[nodiscard]] std::vector<float> heavy_hitter_scores(double variance_weight) const;

 private:
  struct Moments {
    double mean = 0;
    double second = 0;  // sum of squared deviations
    double fourth = 0;  // sum of fourth powers
  };
  [[nodiscard]] Moments moments(std::int64_t query_head, std::int64_t key) const;
  [[nodiscard]] float at(std::int64_t query_head, std::int64_t query, std::int64_t key) const {
    return weights_[static_cast<std::size_t>((query_head * queries_ + query) * keys_ + key)];
  }

  std::int64_t query_heads_;
  std::int64_t queries_;
  std::int64_t first_position_;
  std::int64_t keys_;
  std::vector<float> weights_;
};

}  // namespace kvreplay
