#include "sim/time/context_projection.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace kvreplay {
namespace {

/// Multiplies by a ratio of tokens; by 1 where there are none to begin with.
struct Factor {
  std::int64_t to = 1;
  std::int64_t from = 1;

  [[nodiscard]] static Factor of(std::int64_t to, std::int64_t from) {
    return from > 0 && to >= 0 ? Factor{to, from} : Factor{};
  }

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

/// The reads of each step so many times, as scattered: whole copies, each in a part of its own of
/// the longer region, and of one more copy as many reads, evenly spread, as the bytes ask for.
void repeat_reads(LayerPlan::Io& io, std::uint64_t recorded_region_bytes,
                  const std::vector<Factor>& factors) {
  std::vector<Extent> reads;
  std::vector<std::int64_t> begin{0};
  for (std::size_t step = 0; step < factors.size(); ++step) {
    const std::span<const Extent> recorded = io.reads_at(static_cast<std::int64_t>(step));
    std::uint64_t bytes = 0;
    for (const Extent& read : recorded) bytes += read.bytes;
    std::uint64_t wanted = bytes;
    factors[step].grow(wanted);
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
/// Of the attended tokens, `outside` do not grow.
void grow_share(LayerPlan& layer, std::size_t step, const Factor& factor, std::int64_t outside) {
  LayerPlan::Accounting& counted = layer.accounting;
  for (auto* bytes : {&counted.missed_bytes, &counted.hit_bytes, &counted.best_hit_bytes}) {
    factor.grow((*bytes)[step]);
  }
  counted.requested_bytes[step] = counted.missed_bytes[step] + counted.hit_bytes[step];
  grow_entries(layer.compute, step, factor);
  double& attended = layer.compute.attended_tokens[step];
  const double selected = std::max(attended - static_cast<double>(outside), 0.0);
  attended += selected * (static_cast<double>(factor.to) / static_cast<double>(factor.from) - 1);
}

/// What a step of a plan and of its projection finds.
struct StepTokens {
  std::int64_t recorded = 0;   ///< visible, its own among them
  std::int64_t projected = 0;  ///< likewise
  std::int64_t outside = 0;    ///< in memory outside groups, or its own: as many in both

  /// Of the tokens in groups.
  [[nodiscard]] Factor grouped() const {
    return Factor::of(projected - outside, recorded - outside);
  }
  /// Where a step attends to all of them, and to so many at most of a longer sequence.
  [[nodiscard]] StepTokens bounded_by(const AttendedBound& bound) const {
    if (bound.tokens == 0) return *this;
    const std::int64_t most = bound.tokens + (bound.covers_all ? 0 : outside);
    return {recorded, std::min(projected, std::max(recorded, most)), outside};
  }
};

StepTokens tokens_of(const LayerPlan& layer, const IoPlan& plan, std::int64_t prompt_tokens,
                     std::int64_t step) {
  const std::int64_t window = layer.sliding_window;
  const std::int64_t heads = plan.kinds.at(static_cast<std::size_t>(layer.kind)).kv_heads;
  return {visible_tokens(plan.prompt_tokens + step + 1, window),
          visible_tokens(prompt_tokens + step + 1, window),
          layer.compute.buffered_entries[static_cast<std::size_t>(step)] / heads + 1};
}

/// Whether the step makes groups of nearly all tokens, which it reads for that.
/// `live_bytes`: of all groups, as recorded.
bool regroups_all(const LayerPlan& layer, const IoPlan& plan, std::uint64_t live_bytes,
                  std::size_t step, const StepTokens& tokens) {
  const std::int64_t heads = plan.kinds.at(static_cast<std::size_t>(layer.kind)).kv_heads;
  const std::int64_t in_groups = tokens.recorded - tokens.outside;
  const std::int64_t requested = layer.accounting.requested_bytes[step];
  return in_groups > 0 && layer.compute.regrouped_entries[step] / heads > in_groups / 2 &&
         requested > static_cast<std::int64_t>(live_bytes / 10 * 9);
}

/// The peak of what the cache holds: `grown` times, but for the newest entries in a form of their
/// own, and never more than its capacity.
void grow_cache(LayerPlan& layer, const IoPlan& plan, const Factor& grown) {
  std::int64_t& bytes = layer.dram.cache_bytes;
  const std::int64_t newest = std::clamp<std::int64_t>(layer.growth.newest_bytes, 0, bytes);
  std::int64_t others = bytes - newest;
  grown.grow(others);
  const std::int64_t wanted = newest + others;
  bytes = plan.cache_has_capacity
              ? std::clamp(wanted, bytes, std::max(bytes, layer.growth.capacity_bytes))
              : wanted;
}

void grow_index(LayerPlan& layer, const Factor& prompt, const Factor& grouped) {
  std::int64_t& bytes = layer.dram.index_bytes;
  const std::int64_t fixed = std::clamp<std::int64_t>(layer.growth.index_fixed_bytes, 0, bytes);
  std::int64_t of_prompt =
      std::clamp<std::int64_t>(layer.growth.index_prompt_bytes, 0, bytes - fixed);
  std::int64_t of_groups = bytes - fixed - of_prompt;
  prompt.grow(of_prompt);
  grouped.grow(of_groups);
  bytes = fixed + of_prompt + of_groups;
}

/// `context`: the growth of the sequence. What a sliding window shows grows by less.
void grow_layer(LayerPlan& layer, const IoPlan& plan, std::int64_t prompt_tokens,
                const Factor& context) {
  const std::int64_t window = layer.sliding_window;
  const Factor factor{visible_tokens(context.to, window), visible_tokens(context.from, window)};
  const std::uint64_t recorded_region_bytes = layer.io.region_bytes;
  const std::uint64_t recorded_live_bytes = layer.io.live_bytes;
  context.grow(layer.dram.entries_bytes);
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
  factor.grow(layer.prompt.factorise_flops);
  factor.grow(layer.prompt.similarities);
  if (layer.prompt.square_flops > 0) factor.grow(layer.prompt.similarities);
  factor.grow(layer.prompt.square_flops);
  factor.grow(layer.prompt.square_flops);
  factor.grow(layer.prompt.bytes);
  factor.grow(layer.io.region_bytes);
  factor.grow(layer.io.live_bytes);

  const Factor visible_prompt =
      Factor::of(visible_tokens(prompt_tokens, window), visible_tokens(plan.prompt_tokens, window));
  std::int64_t whole_steps = 0;
  bool shares = false;
  std::int64_t most_missed = 0;  // by a step that groups everything anew
  std::vector<Factor> repeated(static_cast<std::size_t>(plan.steps));
  // Of the last step, at which most is there.
  Factor kept;
  Factor requested;
  Factor grouped;
  for (std::int64_t step = 0; step < plan.steps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    const StepTokens tokens = tokens_of(layer, plan, prompt_tokens, step);
    grouped = tokens.grouped();
    grouped.grow(layer.compute.score_bytes[at]);
    grouped.grow(layer.compute.score_flops[at]);
    if (layer.compute.attended_tokens[at] >= static_cast<double>(tokens.recorded)) {
      const StepTokens attended = layer.full_attention ? tokens : tokens.bounded_by(plan.bound);
      layer.compute.attended_tokens[at] = static_cast<double>(attended.projected);
      requested = attended.grouped();
      grow_step(layer, at, requested);
      // Of those that are in groups once the step's own is, too.
      kept = Factor::of(attended.projected - attended.outside + 1,
                        attended.recorded - attended.outside + 1);
      ++whole_steps;
    } else if (regroups_all(layer, plan, recorded_live_bytes, at, tokens)) {
      grow_step(layer, at, grouped);
      grouped.grow(layer.compute.regrouped_entries[at]);
      most_missed = std::max(most_missed, layer.accounting.missed_bytes[at]);
    } else if (plan.bound.share_of_context) {
      requested = plan.bound.share_of_prompt
                      ? visible_prompt
                      : Factor::of(tokens.projected - 1, tokens.recorded - 1);
      kept = requested;
      repeated[at] = requested;
      grow_share(layer, at, requested, tokens.outside);
      shares = true;
    }
  }
  grow_index(layer, visible_prompt, grouped);
  if (whole_steps == plan.steps || shares) {
    if (shares) repeat_reads(layer.io, recorded_region_bytes, repeated);
    requested.grow(layer.dram.fetched_bytes);
    grow_cache(layer, plan, kept);
  } else if (layer.growth.holds_all) {
    grow_cache(layer, plan, grouped);
  }
  layer.dram.fetched_bytes = std::max(layer.dram.fetched_bytes, most_missed);
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
