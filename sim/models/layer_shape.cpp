#include "sim/models/layer_shape.hpp"

#include <optional>
#include <utility>

namespace kvreplay {

LayerShape layer_shape(const Architecture& architecture, std::int64_t layer,
                       std::int64_t prompt_tokens, std::int64_t max_tokens) {
  const Architecture& a = architecture;
  const auto at = static_cast<std::size_t>(layer);
  std::optional<RotaryEmbedding> rope;
  if (a.rope_scaling == "none") rope.emplace(a.rope_theta[at], a.rope_interleaved, a.head_dim);
  return {.layer = layer,
          .query_heads = a.query_heads,
          .kv_heads = a.kv_heads,
          .head_dim = a.head_dim,
          .softmax_scale = static_cast<float>(a.softmax_scale),
          .prompt_tokens = prompt_tokens,
          .max_tokens = max_tokens,
          .sliding_window = a.sliding_window[at],
          .rope = std::move(rope)};
}

}  // namespace kvreplay
