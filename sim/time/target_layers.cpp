#include "sim/time/target_layers.hpp"

namespace kvreplay {
namespace {

std::vector<const LayerPlan*> plans_of_kind(const IoPlan& plan, std::int64_t kind) {
  std::vector<const LayerPlan*> plans;
  for (const LayerPlan& layer : plan.layers) {
    if (layer.kind == kind) plans.push_back(&layer);
  }
  return plans;
}

}  // namespace

std::vector<const LayerPlan*> plans_to_follow(const IoPlan& plan, std::int64_t kind) {
  std::vector<const LayerPlan*> plans = plans_of_kind(plan, kind);
  std::erase_if(plans, [](const LayerPlan* layer) { return layer->full_attention; });
  return plans;
}

namespace {

TargetLayer target_layer(const IoPlan& plan, const ModelSpec& model, std::int64_t number) {
  const LayerSpec& layer = model.layer(number);
  if (!layer.attends) return {};
  // A layer that uses an earlier one's entries does what that one does.
  const std::int64_t source = layer.source;
  const bool shares = source != number;
  const auto pick = [&](const std::vector<const LayerPlan*>& plans) {
    return plans[static_cast<std::size_t>(source % std::ssize(plans))];
  };
  if (source >= plan.full_attention_layers) {
    return {.plan = pick(plans_to_follow(plan, layer.kind)), .uses_earlier_entries = shares};
  }
  const std::vector<const LayerPlan*> plans = plans_of_kind(plan, layer.kind);
  return {.plan = plans.front(),
          .full_attention = true,
          .sliding_window = pick(plans)->sliding_window,
          .uses_earlier_entries = shares};
}

}  // namespace

/// Of a layer's plan at rest, with the window's share of the tokens.
std::int64_t full_attention_bytes(const IoPlan& plan, const TargetLayer& layer) {
  const std::int64_t tokens = plan.prompt_tokens + plan.steps;
  return layer.plan->dram.entries_bytes * visible_tokens(tokens, layer.sliding_window) / tokens;
}

bool has_groups(const TargetLayer& layer) {
  return layer.plan != nullptr && !layer.full_attention && !layer.uses_earlier_entries;
}

std::vector<TargetLayer> target_layers(const IoPlan& plan, const ModelSpec& model) {
  std::vector<TargetLayer> layers;
  for (std::int64_t i = 0; i < model.layers; ++i) layers.push_back(target_layer(plan, model, i));
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::int64_t source = model.layer(i).source;
    if (source != i) layers[static_cast<std::size_t>(source)].is_used_later = true;
  }
  return layers;
}

}  // namespace kvreplay
