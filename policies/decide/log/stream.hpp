#pragma once

#include <cstdint>
#include <span>

#include "base/half.hpp"

namespace kvreplay {

/// Position of a token in its sequence.
using Token = std::int32_t;

/// The shape of a stream: the sequence of entries that one index manages. A stream is one KV head
/// of one layer, or all KV heads of a layer where a system keeps them jointly.
struct StreamShape {
  std::int64_t layer = 0;  ///< the model's layer number
  std::int64_t first_kv_head = 0;
  std::int64_t kv_heads = 1;  ///< KV heads in the stream
  std::int64_t queries_per_kv_head = 1;
  std::int64_t head_dim = 0;
  float softmax_scale = 0;  ///< usually 1 / sqrt(head_dim)

  [[nodiscard]] std::int64_t query_heads() const { return kv_heads * queries_per_kv_head; }
  /// Where its query heads lie in the layer's queries, [query_heads of the layer, head_dim].
  [[nodiscard]] std::size_t first_query() const {
    return static_cast<std::size_t>(first_kv_head * queries_per_kv_head * head_dim);
  }
  [[nodiscard]] std::size_t query_elements() const {
    return static_cast<std::size_t>(query_heads() * head_dim);
  }
  /// The KV head, numbered within the stream, that a query head of the stream reads.
  [[nodiscard]] std::int64_t kv_head_of(std::int64_t query_head) const {
    return query_head / queries_per_kv_head;
  }
};

/// The first token that the query at `position` sees in a layer whose queries see the latest
/// `sliding_window` tokens, their own included; 0 = all. The one place that says what a window
/// hides: nothing before it is selected, read, held or attended to.
[[nodiscard]] constexpr Token first_visible(std::int64_t position, std::int64_t sliding_window) {
  if (sliding_window <= 0 || position < sliding_window) return 0;
  return static_cast<Token>(position + 1 - sliding_window);
}

/// How many of a sequence's latest `tokens` its newest query sees.
[[nodiscard]] constexpr std::int64_t visible_tokens(std::int64_t tokens,
                                                    std::int64_t sliding_window) {
  return sliding_window > 0 && sliding_window < tokens ? sliding_window : tokens;
}

/// What a stream holds: keys and values, [kv_heads, tokens so far, head_dim]. Later tokens are the
/// future and are not in the view.
struct Entries {
  HalfTensor keys;
  HalfTensor values;

  [[nodiscard]] Entries first_tokens(std::int64_t end) const {
    return {keys.first_tokens(end), values.first_tokens(end)};
  }
  [[nodiscard]] Entries select_heads(std::int64_t begin, std::int64_t count) const {
    return {keys.select_heads(begin, count), values.select_heads(begin, count)};
  }
};

/// Queries of one position, [query heads, head_dim] row-major.
using QueryRows = std::span<const float>;

/// Queries of the prompt's last positions, [query heads, positions, head_dim]. Retention at
/// prefill, co-retrieval counts and outlier rules may read them.
struct QueryWindow {
  HalfTensor queries;
  std::int64_t start = 0;  ///< position of the first; the last is the prompt's last token

  [[nodiscard]] QueryWindow select_heads(std::int64_t begin, std::int64_t count) const {
    return {queries.select_heads(begin, count), start};
  }
};

}  // namespace kvreplay
