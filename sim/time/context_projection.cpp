#include "sim/time/context_projection.hpp"

#include <algorithm>
#include <cmath>
#include <span>
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

void grow_entries(LayerPlan::Compute& compute, std::size_t step, const Factor& factor) {
  factor.grow(compute.fetched_entries[step]);
  factor.grow(compute.decoded_entries[step]);
}

void grow_step(LayerPlan& layer, std::size_t step, const Factor& factor) {
  LayerPlan::Accounting& counted = layer.accounting;
  for (auto* bytes : {&counted.requested_bytes, &counted.hit_bytes, &counted.best_hit_bytes}) {
    factor.grow((*bytes)[step]);
  }
  counted.missed_bytes[step] = counted.requested_bytes[step] - counted.hit_bytes[step];
  grow_entries(layer.compute, step, factor);
  for (std::int64_t r = layer.io.read_begin[step]; r < layer.io.read_begin[step + 1]; ++r) {
    factor.grow(layer.io.reads[static_cast<std::size_t>(r)]);
  }
}

/// The reads of the steps in `grown` f times, as scattered: whole copies, each in a part of its own
/// of the longer region, and of one more copy as many reads, evenly spread, as the bytes ask for.
void repeat_reads(LayerPlan::Io& io, std::uint64_t recorded_region_bytes, const Factor& factor,
                  const std::vector<bool>& grown) {
  std::vector<Extent> reads;
  std::vector<std::int64_t> begin{0};
  for (std::size_t step = 0; step < grown.size(); ++step) {
    const std::span<const Extent> recorded = io.reads_at(static_cast<std::int64_t>(step));
    std::uint64_t bytes = 0;
    for (const Extent& read : recorded) bytes += read.bytes;
    std::uint64_t wanted = bytes;
    if (grown[step]) factor.grow(wanted);
    for (std::uint64_t offset = 0; wanted > 0; offset += recorded_region_bytes) {
      const std::uint64_t of_copy = std::min(wanted, bytes);
      std::uint64_t passed = 0;
      std::uint64_t taken = 0;
      for (const Extent& read : recorded) {
        passed += read.bytes;
        if (taken * bytes >= passed * of_copy) continue;  // the copy's share so far is there
        taken += read.bytes;
        reads.push_back({offset + read.offset, read.bytes});
      }
      wanted -= of_copy;
    }
    begin.push_back(std::ssize(reads));
  }
  for (const Extent& read : reads) io.region_bytes = std::max(io.region_bytes, read.end());
  io.reads = std::move(reads);
  io.read_begin = std::move(begin);
}

/// What a share of a longer context takes of a step: its reads follow the bytes that are missed.
void grow_share(LayerPlan& layer, std::size_t step, const Factor& factor) {
  LayerPlan::Accounting& counted = layer.accounting;
  for (auto* bytes : {&counted.missed_bytes, &counted.hit_bytes, &counted.best_hit_bytes}) {
    factor.grow((*bytes)[step]);
  }
  counted.requested_bytes[step] = counted.missed_bytes[step] + counted.hit_bytes[step];
  grow_entries(layer.compute, step, factor);
  layer.compute.attended_tokens[step] *=
      static_cast<double>(factor.to) / static_cast<double>(factor.from);
}

/// `context`: the growth of the sequence. What a sliding window shows grows by less.
void grow_layer(LayerPlan& layer, const IoPlan& plan, std::int64_t prompt_tokens,
                const Factor& context) {
  const std::int64_t window = layer.sliding_window;
  const Factor factor{visible_tokens(context.to, window), visible_tokens(context.from, window)};
  const std::uint64_t recorded_region_bytes = layer.io.region_bytes;
  context.grow(layer.dram.entries_bytes);
  factor.grow(layer.dram.index_bytes);
  factor.grow(layer.io.prompt_write_bytes);
  for (Extent& extent : layer.io.prompt_writes) factor.grow(extent);
  // What needs the whole prompt still does.
  const Factor prompt{prompt_tokens, plan.prompt_tokens};
  for (auto* extents : {&layer.turns.live, &layer.turns.cached}) {
    for (Extent& extent : *extents) factor.grow(extent);
  }
  for (auto* bytes : {&layer.turns.memory_bytes, &layer.turns.index_bytes}) {
    for (std::int64_t& of_turn : *bytes) factor.grow(of_turn);
  }
  for (std::int64_t& tokens : layer.io.prompt_ready) prompt.grow(tokens);
  factor.grow(layer.prompt.flops);
  factor.grow(layer.prompt.square_flops);
  factor.grow(layer.prompt.square_flops);
  factor.grow(layer.prompt.bytes);
  factor.grow(layer.io.region_bytes);
  factor.grow(layer.io.live_bytes);
  for (std::int64_t& bytes : layer.compute.score_bytes) factor.grow(bytes);
  for (std::int64_t& flops : layer.compute.score_flops) factor.grow(flops);

  std::int64_t whole_steps = 0;
  std::vector<bool> shares(static_cast<std::size_t>(plan.steps));
  for (std::int64_t step = 0; step < plan.steps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    const std::int64_t seen = visible_tokens(plan.prompt_tokens + step + 1, window);
    if (layer.compute.attended_tokens[at] < static_cast<double>(seen)) {
      shares[at] = plan.share_of_context;
      if (shares[at]) grow_share(layer, at, factor);
      continue;
    }
    layer.compute.attended_tokens[at] =
        static_cast<double>(visible_tokens(prompt_tokens + step + 1, window));
    grow_step(layer, at, factor);
    ++whole_steps;
  }
  if (whole_steps == plan.steps) {
    factor.grow(layer.dram.cache_bytes);
    factor.grow(layer.dram.fetched_bytes);
  } else if (plan.share_of_context) {
    repeat_reads(layer.io, recorded_region_bytes, factor, shares);
    factor.grow(layer.dram.fetched_bytes);
    if (!plan.cache_has_capacity) factor.grow(layer.dram.cache_bytes);
  }
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
