#include "policies/decide/layer_ratios.hpp"

#include <algorithm>
#include <memory>

#include "policies/decide/prompt_attention.hpp"

namespace kvreplay {
namespace {

std::unique_ptr<Retention> make_part(const DecideSpec& spec, const LayerShape& layer) {
  return spec.retention.make({layer.stream(0, layer.kv_heads), layer.prompt_tokens});
}

}  // namespace

bool compares_layers(const DecideSpec& spec, const LayerShape& layer) {
  return layer.layer >= spec.full_attention_layers() && make_part(spec, layer)->compares_layers();
}

double layer_score(const DecideSpec& spec, const LayerShape& layer, const Entries& prompt,
                   const QueryWindow& window) {
  const std::unique_ptr<Retention> part = make_part(spec, layer);
  for_prompt_attention(layer.stream(0, layer.kv_heads), layer.sliding_window, prompt, window,
                       [&](auto... attention) { part->notify_attention(attention...); });
  return part->layer_score();
}

std::vector<double> layer_ratios(std::span<const double> scores) {
  const double max_score = *std::max_element(scores.begin(), scores.end());
  std::vector<double> ratios(scores.size(), 1);
  for (std::size_t i = 0; i < scores.size() && max_score > 0; ++i) {
    ratios[i] = scores[i] / max_score;
  }
  return ratios;
}

}  // namespace kvreplay
