#include "policies/decide/quality.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

std::span<const float> row(const std::vector<float>& rows, std::int64_t index, std::int64_t width) {
  return std::span(rows).subspan(static_cast<std::size_t>(index * width),
                                 static_cast<std::size_t>(width));
}

}  // namespace

void ExactStep::compute(const LayerShape& shape, const Entries& entries, QueryRows queries) {
  const std::int64_t end = entries.keys.tokens;
  const std::int64_t first = first_visible(end - 1, shape.sliding_window);
  const std::int64_t seen = end - first;
  head_dim_ = shape.head_dim;
  tokens_.resize(static_cast<std::size_t>(seen));
  std::iota(tokens_.begin(), tokens_.end(), static_cast<Token>(first));
  logits_.resize(static_cast<std::size_t>(shape.query_heads * seen));
  probabilities_.resize(logits_.size());
  outputs_.resize(static_cast<std::size_t>(shape.query_heads * head_dim_));

  const std::int64_t heads = shape.query_heads / shape.kv_heads;
  for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
    kernels::score(queries.data() + kv * heads * head_dim_, heads, entries.keys.row(kv, first),
                   seen, head_dim_, logits_.data() + kv * heads * seen, seen);
    for (std::int64_t head = kv * heads; head < (kv + 1) * heads; ++head) {
      kernels::attend(queries.data() + head * head_dim_, entries.keys.head(kv),
                      entries.values.head(kv), tokens_, head_dim_, shape.softmax_scale,
                      probabilities_.data() + head * seen, outputs_.data() + head * head_dim_);
    }
  }
}

bool ExactStep::finite() const {
  const auto all_finite = [](const std::vector<float>& values) {
    return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  };
  return all_finite(logits_) && all_finite(probabilities_) && all_finite(outputs_);
}

std::span<const float> ExactStep::logits(std::int64_t query_head) const {
  return row(logits_, query_head, token_count());
}
std::span<const float> ExactStep::probabilities(std::int64_t query_head) const {
  return row(probabilities_, query_head, token_count());
}
std::span<const float> ExactStep::output(std::int64_t query_head) const {
  return row(outputs_, query_head, head_dim_);
}

HeadQuality measure(const ExactStep& exact, std::int64_t query_head,
                    const HeadAttention& attention) {
  const std::span<const float> probabilities = exact.probabilities(query_head);
  const auto probability = [&](Token index) -> double {
    return probabilities[static_cast<std::size_t>(index)];
  };
  const auto count = std::ssize(attention.tokens);
  std::vector<Token> best(static_cast<std::size_t>(count));  // numbered relative to first_token()
  kernels::top_k(exact.logits(query_head).data(), exact.token_count(), count, best);

  double mass = 0;
  std::int64_t found = 0;
  auto next_best = best.begin();
  for (const Token token : attention.tokens) {
    const Token index = token - exact.first_token();
    mass += probability(index);
    while (next_best != best.end() && *next_best < index) ++next_best;
    if (next_best != best.end() && *next_best == index) ++found;
  }
  double best_mass = 0;
  for (const Token index : best) best_mass += probability(index);
  // Summed in the same order as `mass`, so that attending to everything gives exactly 1.
  const double total = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);

  double difference = 0;
  double norm = 0;
  const std::span<const float> output = exact.output(query_head);
  for (std::size_t i = 0; i < output.size(); ++i) {
    const double reference = output[i];
    const double off = attention.output[i] - reference;
    difference += off * off;
    norm += reference * reference;
  }
  const double error = std::sqrt(difference / norm);

  return {.recall = static_cast<float>(static_cast<double>(found) / static_cast<double>(count)),
          .attention_mass = static_cast<float>(mass / total),
          .best_attention_mass = static_cast<float>(best_mass / total),
          .output_error = difference == 0 ? 0 : static_cast<float>(error)};
}

}  // namespace kvreplay
