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
  std::vector<float> weights(tokens.size());
  std::vector<float> query(static_cast<std::size_t>(shape.head_dim));
  std::vector<float> output(query.size());
  for (std::int64_t i = 0; i < window.queries.tokens; ++i) {
    const std::int64_t position = window.start + i;
    const std::int64_t first = first_visible(position, sliding_window);
    const std::span<const Token> seen = std::span<const Token>(tokens).subspan(
        static_cast<std::size_t>(first), static_cast<std::size_t>(position + 1 - first));
    for (std::int64_t head = 0; head < shape.query_heads(); ++head) {
      const std::int64_t kv = shape.kv_head_of(head);
      kernels::to_float(window.queries.row(head, i), query.data(), shape.head_dim);
      kernels::attend(query.data(), entries.keys.head(kv), entries.values.head(kv), seen,
                      shape.head_dim, shape.softmax_scale, weights.data(), output.data());
      visit(head, static_cast<Token>(position), seen,
            std::span<const float>(weights).first(seen.size()));
    }
  }
}

}  // namespace kvreplay
