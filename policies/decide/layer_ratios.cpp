#include "policies/decide/layer_ratios.hpp"

#include <algorithm>
#include <memory>

#include "policies/decide/prompt_attention.hpp"

namespace kvreplay {
namespace {

/// All KV heads of the layer jointly.
StreamShape whole_layer(const LayerShape& layer) {
  return {.layer = layer.layer,
          .first_kv_head = 0,
          .kv_heads = layer.kv_heads,
          .queries_per_kv_head = layer.query_heads / layer.kv_heads,
          .head_dim = layer.head_dim,
          .softmax_scale = layer.softmax_scale};
}

std::unique_ptr<Retention> make_part(const DecideSpec& spec, const LayerShape& layer) {
  return spec.retention.make({whole_layer(layer), layer.prompt_tokens});
}

}  // namespace

bool compares_layers(const DecideSpec& spec, const LayerShape& layer) {
  return layer.layer >= spec.full_attention_layers() && make_part(spec, layer)->compares_layers();
}

double layer_score(const DecideSpec& spec, const LayerShape& layer, const Entries& prompt,
                   const QueryWindow& window) {
  const std::unique_ptr<Retention> part = make_part(spec, layer);
  for_prompt_attention(whole_layer(layer), layer.sliding_window, prompt, window,
                       [&](auto... attention) { part->on_attention(attention...); });
  return part->layer_score();
}

std::vector<double> layer_ratios(std::span<const double> scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> ratios(scores.size(), 1);
  for (std::size_t i = 0; i < scores.size() && largest > 0; ++i) ratios[i] = scores[i] / largest;
  return ratios;
}

}  // namespace kvreplay
