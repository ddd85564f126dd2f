#include "policies/place/io_plan_bytes.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/packed.hpp"

namespace kvreplay {
namespace {

template <typename Layer, typename Visit>
void for_layer_plan(Layer& layer, Visit&& visit) {
  auto& [full_attention, sliding_window, kind, io, compute, dram, accounting, prompt, turns,
         growth] = layer;
  auto& [read_begin, reads, merge_reads, write_begin, writes, cache_read_begin, cache_reads,
         cache_paged, prompt_write_bytes, prompt_writes, prompt_ready, region_bytes, live_bytes] =
      io;
  auto& [attended_tokens, score_bytes, score_flops, fetched_entries, decoded_entries,
         buffered_entries, regrouped_entries] = compute;
  auto& [cache_bytes, buffered_bytes, index_bytes, fetched_bytes, entries_bytes] = dram;
  auto& [prompt_flops, prompt_square_flops, prompt_bytes, prompt_factorise_flops,
         prompt_similarities] = prompt;
  auto& [requested_bytes, hit_bytes, missed_bytes, best_hit_bytes, moved_bytes] = accounting;
  auto& [index_fixed, index_prompt, newest, capacity, holds_all] = growth;
  auto& [live_begin, live, cached_begin, cached, memory, buffered, index] = turns;
  visit_all(visit, full_attention, sliding_window, kind, read_begin, reads, merge_reads,
            write_begin, writes, cache_read_begin, cache_reads, cache_paged, prompt_write_bytes,
            prompt_writes, prompt_ready, prompt_flops, prompt_square_flops, prompt_bytes,
            prompt_factorise_flops, prompt_similarities, region_bytes, live_bytes, requested_bytes,
            hit_bytes, missed_bytes, best_hit_bytes, moved_bytes, attended_tokens, score_bytes,
            score_flops, fetched_entries, decoded_entries, buffered_entries, regrouped_entries,
            cache_bytes, buffered_bytes, index_bytes, fetched_bytes, entries_bytes, live_begin,
            live, cached_begin, cached, memory, buffered, index, index_fixed, index_prompt, newest,
            capacity, holds_all);
}

/// Visits the numbers of a plan, without its kinds and layers.
template <typename Plan, typename Visit>
void for_plan(Plan& plan, Visit&& visit) {
  auto& [system, kinds, prompt_tokens, steps, full_attention_layers, layers, bound,
         cache_has_capacity, grouping, scoring, precision, looks_ahead, heads_select_alone, turns] =
      plan;
  visit_all(visit, system, prompt_tokens, steps, full_attention_layers, bound.share_of_context,
            bound.share_of_prompt, bound.tokens, bound.covers_all, cache_has_capacity, grouping,
            scoring, precision, looks_ahead, heads_select_alone);
}

/// Visits the members of a shape but for its window, which may be absent.
template <typename Shape, typename Visit>
void for_shape(Shape& shape, Visit&& visit) {
  auto& [layers, query_heads, kv_heads, head_dim, one_vector, sliding_window] = shape;
  visit_all(visit, layers, query_heads, kv_heads, head_dim, one_vector);
}

constexpr std::int64_t kAnyWindow = -1;

/// The largest number that divides every offset and size. It is mostly the bytes of an entry or a
/// page, so that offsets and sizes in this unit are small numbers.
std::uint64_t unit_of(const std::vector<Extent>& extents) {
  std::uint64_t unit = 0;
  for (const Extent& extent : extents) {
    unit = std::gcd(std::gcd(unit, extent.offset), extent.bytes);
    if (unit == 1) break;
  }
  return std::max<std::uint64_t>(unit, 1);
}

/// An extent as its distance from the end of the previous one and its size, in units.
void write_extents(PackedWriter& write, const std::vector<Extent>& extents) {
  const std::uint64_t unit = unit_of(extents);
  write(std::ssize(extents));
  write(unit);
  std::uint64_t end = 0;
  for (const Extent& extent : extents) {
    write(static_cast<std::int64_t>(extent.offset / unit - end / unit));
    write(extent.bytes / unit);
    end = extent.end();
  }
}

void read_extents(PackedReader& read, std::vector<Extent>& extents) {
  const std::size_t count = read.count();
  std::uint64_t unit = 0;
  read(unit);
  extents.resize(count);
  std::uint64_t end = 0;
  for (Extent& extent : extents) {
    std::int64_t distance = 0;
    read(distance);
    read(extent.bytes);
    extent.offset = end + static_cast<std::uint64_t>(distance) * unit;
    extent.bytes *= unit;
    end = extent.end();
  }
}

void require_fit(bool holds) {
  if (!holds) throw std::logic_error("a stored plan whose parts do not fit each other");
}

void check_extents(const std::vector<std::int64_t>& begins, const std::vector<Extent>& extents,
                   std::size_t steps, std::uint64_t end) {
  require_fit(begins.size() == steps + 1 && begins.front() == 0 &&
              std::is_sorted(begins.begin(), begins.end()) && begins.back() == std::ssize(extents));
  for (const Extent& extent : extents) {
    require_fit(extent.offset <= end && extent.bytes <= end - extent.offset);
  }
}

/// What a reader of the plan indexes by.
void check_layer(const LayerPlan& layer, std::int64_t plan_steps) {
  const auto steps = static_cast<std::size_t>(plan_steps);
  const LayerPlan::Io& io = layer.io;
  check_extents(io.read_begin, io.reads, steps, io.region_bytes);
  check_extents(io.write_begin, io.writes, steps, io.region_bytes);
  if (io.cache_paged) {
    require_fit(io.cache_read_begin.size() > steps);
    require_fit(std::is_sorted(io.cache_read_begin.begin(), io.cache_read_begin.end()) &&
                io.cache_read_begin.front() >= 0 &&
                io.cache_read_begin.back() == std::ssize(io.cache_reads));
  }
  require_fit(io.prompt_ready.size() == io.prompt_writes.size() &&
              std::is_sorted(io.prompt_ready.begin(), io.prompt_ready.end()));
  for (const Extent& extent : io.prompt_writes) {
    require_fit(extent.offset <= io.region_bytes &&
                extent.bytes <= io.region_bytes - extent.offset);
  }
  const LayerPlan::Accounting& counted = layer.accounting;
  for (const auto* values :
       {&counted.requested_bytes, &counted.hit_bytes, &counted.missed_bytes,
        &counted.best_hit_bytes, &counted.moved_bytes, &layer.compute.score_bytes,
        &layer.compute.score_flops, &layer.compute.fetched_entries, &layer.compute.decoded_entries,
        &layer.compute.buffered_entries, &layer.compute.regrouped_entries}) {
    require_fit(values->size() == steps);
  }
  require_fit(layer.compute.attended_tokens.size() == steps);
}

void check_turns(const IoPlan& plan) {
  std::int64_t last = 0;
  for (const TurnSteps& turn : plan.turns) {
    require_fit(turn.begin >= last && turn.generated_begin >= turn.begin &&
                turn.end > turn.generated_begin && turn.end <= plan.steps);
    last = turn.end;
  }
  const std::size_t later = plan.turns.empty() ? 0 : plan.turns.size() - 1;
  for (const LayerPlan& layer : plan.layers) {
    const LayerPlan::Turns& turns = layer.turns;
    const std::size_t count = layer.full_attention ? 0 : later;
    require_fit(turns.memory_bytes.size() == count && turns.buffered_bytes.size() == count &&
                turns.index_bytes.size() == count);
    check_extents(turns.live_begin, turns.live, count, layer.io.region_bytes);
    check_extents(turns.cached_begin, turns.cached, count, layer.io.region_bytes);
  }
}

struct PlanWriter {
  PackedWriter& write;
  void operator()(const auto& value) { write(value); }
  void operator()(const std::vector<Extent>& extents) { write_extents(write, extents); }
};

struct PlanReader {
  PackedReader& read;
  void operator()(auto& value) { read(value); }
  void operator()(std::vector<Extent>& extents) { read_extents(read, extents); }
};

template <typename T>
std::int64_t bytes_of(const std::vector<T>& values) {
  return static_cast<std::int64_t>(values.size() * sizeof(T));
}

struct ByteCounter {
  std::int64_t bytes = 0;
  template <typename T>
  void operator()(const std::vector<T>& values) {
    bytes += bytes_of(values);
  }
  void operator()(const auto&) {}
};

}  // namespace

std::string to_bytes(const IoPlan& plan) {
  PackedWriter write;
  for_plan(plan, write);
  write(std::ssize(plan.turns));
  for (const TurnSteps& turn : plan.turns) {
    visit_all(write, turn.begin, turn.generated_begin, turn.end);
  }
  write(std::ssize(plan.kinds));
  for (const KvShape& kind : plan.kinds) {
    for_shape(kind, write);
    write(kind.sliding_window.value_or(kAnyWindow));
  }
  write(std::ssize(plan.layers));
  for (const LayerPlan& layer : plan.layers) for_layer_plan(layer, PlanWriter{write});
  return write.bytes();
}

IoPlan plan_from(std::string_view bytes) {
  PackedReader read(bytes);
  IoPlan plan;
  for_plan(plan, read);
  plan.turns.resize(read.count());
  for (TurnSteps& turn : plan.turns) visit_all(read, turn.begin, turn.generated_begin, turn.end);
  plan.kinds.resize(read.count());
  for (KvShape& kind : plan.kinds) {
    for_shape(kind, read);
    std::int64_t window = kAnyWindow;
    read(window);
    if (window != kAnyWindow) kind.sliding_window = window;
  }
  plan.layers.resize(read.count());
  for (LayerPlan& layer : plan.layers) for_layer_plan(layer, PlanReader{read});
  read.check_end();
  require_fit(plan.steps >= 0 && plan.prompt_tokens >= 0);
  for (const LayerPlan& layer : plan.layers) check_layer(layer, plan.steps);
  check_turns(plan);
  return plan;
}

std::int64_t memory_bytes(const IoPlan& plan) {
  ByteCounter counter;
  for (const LayerPlan& layer : plan.layers) for_layer_plan(layer, counter);
  return counter.bytes;
}

}  // namespace kvreplay
