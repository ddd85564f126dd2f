#include "policies/decide/retention/support/attention_statistics.hpp"

#include <algorithm>

#include "policies/kernels/elementary.hpp"

namespace kvreplay {

AttentionWindow::AttentionWindow(std::int64_t query_heads, std::int64_t queries,
                                 std::int64_t prompt_tokens, std::int64_t window)
    : query_heads_(query_heads),
      queries_(queries),
      first_position_(prompt_tokens - queries),
      keys_(std::max<std::int64_t>(prompt_tokens - window, 0)),
      weights_(static_cast<std::size_t>(query_heads_ * queries_ * keys_)) {}

void AttentionWindow::take(std::int64_t query_head, Token position, std::span<const Token> tokens,
                           std::span<const float> weights) {
  if (position < first_position_) return;
  float* row = weights_.data() + (query_head * queries_ + position - first_position_) * keys_;
  for (std::size_t i = 0; i < tokens.size() && tokens[i] < keys_; ++i) row[tokens[i]] = weights[i];
}

AttentionStatistics AttentionWindow::statistics() const {
  AttentionStatistics sums;
  for (const float weight : weights_) {
    const double a = weight;
    sums.entropy -= a * kernels::ln(a + 1e-10);
  }
  const auto queries = static_cast<double>(queries_);
  for (std::int64_t head = 0; head < query_heads_; ++head) {
    for (std::int64_t key = 0; key < keys_; ++key) {
      const Moments m = moments(head, key);
      const double spread = std::max(m.second / queries, 1e-8);
      if (queries_ > 1) sums.variance += m.second / (queries - 1);
      sums.kurtosis += m.fourth / queries / (spread * spread);
    }
  }
  return sums;
}

std::vector<float> AttentionWindow::heavy_hitter_scores(double variance_weight) const {
  std::vector<float> scores;
  scores.reserve(static_cast<std::size_t>(keys_));
  for (std::int64_t key = 0; key < keys_; ++key) {
    double sum = 0;
    for (std::int64_t head = 0; head < query_heads_; ++head) {
      const Moments m = moments(head, key);
      sum += m.mean;
      if (queries_ > 1) sum += variance_weight * m.second / static_cast<double>(queries_ - 1);
    }
    scores.push_back(static_cast<float>(sum / static_cast<double>(query_heads_)));
  }
  return scores;
}

AttentionWindow::Moments AttentionWindow::moments(std::int64_t query_head, std::int64_t key) const {
  Moments result;
  for (std::int64_t q = 0; q < queries_; ++q) result.mean += at(query_head, q, key);
  result.mean /= static_cast<double>(queries_);
  for (std::int64_t q = 0; q < queries_; ++q) {
    const double difference = at(query_head, q, key) - result.mean;
    const double square = difference * difference;
    result.second += square;
    result.fourth += square * square;
  }
  return result;
}

}  // namespace kvreplay
