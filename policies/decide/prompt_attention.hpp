#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "policies/decide/log/stream.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {

/// Calls visit(query head, position, tokens, weights) with the attention of each of the prompt's
/// recorded queries to the tokens that it sees, position by position. `entries`: those of the
/// prompt. sliding_window: how many of the last tokens a query sees; 0 = all.
template <typename Visit>
void for_prompt_attention(const StreamShape& shape, std::int64_t sliding_window,
                          const Entries& entries, const QueryWindow& window, Visit&& visit) {
  std::vector<Token> tokens(static_cast<std::size_t>(entries.keys.tokens));
  std::iota(tokens.begin(), tokens.end(), 0);
  const std::int64_t heads = shape.queries_per_kv_head;
  std::vector<float> queries(static_cast<std::size_t>(heads * shape.head_dim));
  std::vector<float> weights(static_cast<std::size_t>(heads) * tokens.size());
  for (std::int64_t i = 0; i < window.queries.tokens; ++i) {
    const std::int64_t position = window.start + i;
    const std::int64_t first = first_visible(position, sliding_window);
    const std::int64_t count = position + 1 - first;
    const std::span<const Token> seen = std::span<const Token>(tokens).subspan(
        static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
      for (std::int64_t q = 0; q < heads; ++q) {
        kernels::to_float(window.queries.row(kv * heads + q, i),
                          queries.data() + q * shape.head_dim, shape.head_dim);
      }
      kernels::score(queries.data(), heads, entries.keys.row(kv, first), count, shape.head_dim,
                     weights.data(), count);
      for (std::int64_t q = 0; q < heads; ++q) {
        float* row = weights.data() + q * count;
        kernels::softmax(row, count, shape.softmax_scale);
        visit(kv * heads + q, static_cast<Token>(position), seen,
              std::span<const float>(row, static_cast<std::size_t>(count)));
      }
    }
  }
}

}  // namespace kvreplay
