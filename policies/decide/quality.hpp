#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "policies/decide/layer_policy.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

class WorkerPool;

/// Full attention of one step at one layer: the reference for every system. The buffers are kept
/// from step to step.
class ExactStep {
 public:
  /// `entries` reach up to and including the step's own token n; queries: [query_heads, head_dim].
  /// Tokens that a sliding window hides are excluded. KV heads are spread over `pool`, if any.
  void compute(const LayerShape& shape, const Entries& entries, QueryRows queries,
               WorkerPool* pool = nullptr);

  /// Whether every logit and output is finite; false means NaN or infinity in the vectors.
  [[nodiscard]] bool finite() const;

  /// The first token that the step sees; the last one is the step's own.
  [[nodiscard]] Token first_token() const { return tokens_.front(); }
  [[nodiscard]] std::int64_t token_count() const { return std::ssize(tokens_); }
  /// Unscaled q . k and softmax over the tokens seen, [token_count()], from first_token() on.
  [[nodiscard]] std::span<const float> logits(std::int64_t query_head) const;
  [[nodiscard]] std::span<const float> probabilities(std::int64_t query_head) const;
  [[nodiscard]] std::span<const float> output(std::int64_t query_head) const;
  /// The tokens of the `count` largest logits, and the sum of their probabilities. Ascending,
  /// numbered relative to first_token(). They are kept for the next system that attends to as many
  /// tokens, and a larger choice narrows a smaller one. Not for two threads at once and one head.
  struct Best {
    std::vector<Token> tokens;
    double mass = 0;
  };
  [[nodiscard]] const Best& best(std::int64_t query_head, std::int64_t count) const;
  /// The sum of the probabilities, in their order: 1 but for rounding.
  [[nodiscard]] double total(std::int64_t query_head) const {
    return totals_[static_cast<std::size_t>(query_head)];
  }

 private:
  std::int64_t head_dim_ = 0;
  std::vector<Token> tokens_;
  std::vector<float> logits_;         // [query heads, tokens seen]
  std::vector<float> probabilities_;  // [query heads, tokens seen]
  std::vector<float> outputs_;        // [query heads, head_dim]
  std::vector<double> totals_;        // [query heads]
  std::vector<std::uint8_t> finite_;  // [KV heads]

  /// What best() found at this step, and how it was asked at the step before.
  struct Choices {
    std::map<std::int64_t, Best> of_count;
    std::int64_t asked_before = 0;  ///< different counts
    std::int64_t most_before = 0;   ///< the largest of them
  };
  mutable std::vector<Choices> choices_;  // [query heads]
};

/// Fidelity of one query head at one step (docs/metrics.md).
struct HeadQuality {
  float recall = 0;
  float attention_mass = 0;
  float best_attention_mass = 0;
  float output_error = 0;
};

/// Of all heads together: what the rest of the model sees of their errors. The weights must outlive
/// this object.
class ResidualError {
 public:
  explicit ResidualError(const OutputWeights& weights) : weights_(weights) {}

  /// The norm of the error behind the output projection as a share of the residual stream's, which
  /// is that of the recorded query at `index`. 0 where every head is exact.
  [[nodiscard]] float measure(const ExactStep& exact, std::span<const HeadAttention> attention,
                              std::int64_t index);

 private:
  const OutputWeights& weights_;
  std::vector<float> difference_;  // [query heads, head_dim]
  std::vector<float> projected_;   // [rows of the sketch]
};

[[nodiscard]] HeadQuality measure(const ExactStep& exact, std::int64_t query_head,
                                  const HeadAttention& attention);

}  // namespace kvreplay
