#include "sim/time/context_projection.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace kvreplay {
namespace {

/// Multiplies by a ratio of tokens.
struct Factor {
  std::int64_t to;
  std::int64_t from;

  template <typename Number>
  void grow(Number& value) const {
    const double grown =
        static_cast<double>(value) * static_cast<double>(to) / static_cast<double>(from);
    value = static_cast<Number>(std::llround(grown));
  }
  /// Rounds outwards to whole bytes.
  void grow(Extent& extent) const {
    const auto ratio = [&](std::uint64_t value) {
      return static_cast<double>(value) * static_cast<double>(to) / static_cast<double>(from);
    };
    const auto begin = static_cast<std::uint64_t>(std::floor(ratio(extent.offset)));
    const auto end = static_cast<std::uint64_t>(std::ceil(ratio(extent.offset + extent.bytes)));
    extent = {begin, end - begin};
  }
};

void grow_step(LayerPlan& layer, std::size_t step, const Factor& factor) {
  LayerPlan::Accounting& counted = layer.accounting;
  for (auto* bytes : {&counted.requested_bytes, &counted.hit_bytes, &counted.best_hit_bytes}) {
    factor.grow((*bytes)[step]);
  }
  counted.missed_bytes[step] = counted.requested_bytes[step] - counted.hit_bytes[step];
  for (std::int64_t r = layer.io.read_begin[step]; r < layer.io.read_begin[step + 1]; ++r) {
    factor.grow(layer.io.reads[static_cast<std::size_t>(r)]);
  }
}

void grow_layer(LayerPlan& layer, const IoPlan& plan, std::int64_t prompt_tokens,
                const Factor& factor) {
  factor.grow(layer.dram.entries_bytes);
  factor.grow(layer.dram.index_bytes);
  factor.grow(layer.io.prompt_write_bytes);
  factor.grow(layer.io.region_bytes);
  factor.grow(layer.io.live_bytes);
  for (std::int64_t& bytes : layer.compute.score_bytes) factor.grow(bytes);
  for (std::int64_t& flops : layer.compute.score_flops) factor.grow(flops);

  std::int64_t whole_steps = 0;
  for (std::int64_t step = 0; step < plan.steps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    if (layer.compute.attended_tokens[at] < static_cast<double>(plan.prompt_tokens + step + 1))
      continue;
    layer.compute.attended_tokens[at] = static_cast<double>(prompt_tokens + step + 1);
    grow_step(layer, at, factor);
    ++whole_steps;
  }
  if (whole_steps < plan.steps) return;
  factor.grow(layer.dram.cache_bytes);
  factor.grow(layer.dram.fetched_bytes);
}

}  // namespace

IoPlan project_context(const IoPlan& plan, std::int64_t context_tokens) {
  const Factor factor{context_tokens, plan.prompt_tokens + plan.steps};
  if (factor.to < factor.from) {
    throw UserError({"", "model.context_tokens"}, "found " + std::to_string(factor.to),
                    "0, or at least the " + std::to_string(factor.from) +
                        " tokens that were replayed (`kvreplay cut` shortens a trace)");
  }
  IoPlan projected = plan;
  projected.prompt_tokens = context_tokens - plan.steps;
  for (LayerPlan& layer : projected.layers) {
    grow_layer(layer, plan, projected.prompt_tokens, factor);
  }
  return projected;
}

}  // namespace kvreplay
