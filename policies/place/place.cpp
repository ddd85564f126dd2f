#include "policies/place/place.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "base/argument_json.hpp"
#include "policies/place/cache/follow_event.hpp"
#include "policies/place/cache/support/oracle.hpp"
#include "policies/place/layout/step_reads.hpp"
#include "policies/place/place_check.hpp"

namespace kvreplay {
namespace {

/// Scales a recorded number to the target's shape: times `numerator` / `denominator`, rounded to
/// nearest.
std::int64_t scaled(std::int64_t value, std::int64_t numerator, std::int64_t denominator) {
  __extension__ using Wide = __int128;
  return static_cast<std::int64_t>((Wide{value} * numerator + denominator / 2) / denominator);
}

/// One stream of the target, and the recorded stream that it follows.
struct TargetStream {
  const StreamLog* log = nullptr;
  std::int64_t kv_heads = 1;
  std::int64_t query_heads = 1;
  std::int64_t recorded_head_dim = 1;
  std::int64_t head_dim = 1;
  StoredStream stored;
  std::vector<std::int64_t> in_hand;  // by group: the last step that read or created it

  /// Ratio of representatives and scores, which have one element per head dimension.
  [[nodiscard]] std::int64_t by_kv_heads(std::int64_t value) const {
    return scaled(value, kv_heads * head_dim, log->kv_heads * recorded_head_dim);
  }
  [[nodiscard]] std::int64_t by_query_heads(std::int64_t value) const {
    return scaled(value, query_heads * head_dim, log->query_heads * recorded_head_dim);
  }
  void take_in_hand(GroupId group, std::int64_t step) {
    if (static_cast<std::size_t>(group) >= in_hand.size()) {
      in_hand.resize(static_cast<std::size_t>(group) + 1, -1);
    }
    in_hand[static_cast<std::size_t>(group)] = step;
  }
  [[nodiscard]] bool is_in_hand(GroupId group, std::int64_t step) const {
    return static_cast<std::size_t>(group) < in_hand.size() &&
           in_hand[static_cast<std::size_t>(group)] == step;
  }
};

/// Entry bytes, by format, of a stream of `kv_heads` of the target's heads.
std::vector<std::int64_t> format_bytes(const AccessLog& log, std::int64_t kv_heads,
                                       const KvShape& target) {
  std::vector<std::int64_t> bytes;
  for (const EntryFormat& format : log.formats) {
    const std::int64_t both = format.entry_bytes(kv_heads, target.head_dim);
    bytes.push_back(target.one_vector ? (both + 1) / 2 : both);
  }
  if (bytes.empty()) throw std::logic_error("an access log without entry formats");
  return bytes;
}

std::vector<TargetStream> target_streams(const AccessLog& log, const LayerLog& layer,
                                         const KvShape& target) {
  const std::vector<StreamLog>& recorded = layer.streams;
  const bool joint = recorded.size() == 1 && log.kv_heads > 1;
  const std::int64_t heads = joint ? log.kv_heads : 1;
  for (const StreamLog& stream : recorded) {
    if (stream.kv_heads != heads || stream.steps() != log.steps) {
      throw std::logic_error("an access log whose streams are neither a head's nor the layer's");
    }
  }
  std::vector<TargetStream> streams;
  const std::int64_t count = joint ? 1 : target.kv_heads;
  for (std::int64_t s = 0; s < count && !recorded.empty(); ++s) {
    const std::int64_t kv_heads = target.kv_heads / count;
    streams.push_back({.log = &recorded[static_cast<std::size_t>(s % std::ssize(recorded))],
                       .kv_heads = kv_heads,
                       .query_heads = target.query_heads / count,
                       .recorded_head_dim = log.head_dim,
                       .head_dim = target.head_dim,
                       .stored = StoredStream(format_bytes(log, kv_heads, target)),
                       .in_hand = {}});
  }
  return streams;
}

/// Walks a layer's log in the order that place() promises and calls the visitor:
///   access(step, stream, group)        a group is requested
///   event(step, stream, event)         an event that the stream's state has already taken; step -1
///   is
///                                      the prompt
///   end_step(step)
template <typename Visitor>
void walk(std::vector<TargetStream>& streams, std::int64_t steps, Visitor&& visitor) {
  const auto count = static_cast<std::int32_t>(streams.size());
  for (std::int64_t step = -1; step < steps; ++step) {
    for (std::int32_t s = 0; step >= 0 && s < count; ++s) {
      TargetStream& stream = streams[static_cast<std::size_t>(s)];
      stream.log->requested.for_each(step, [&](GroupId group) {
        visitor.access(step, s, group);
        stream.take_in_hand(group, step);
      });
    }
    for (std::int32_t s = 0; s < count; ++s) {
      TargetStream& stream = streams[static_cast<std::size_t>(s)];
      stream.log->for_events(step + 1, [&](const GroupEvent& event) {
        const bool in_hand = event.group != kNoGroup && stream.is_in_hand(event.group, step);
        if (event.kind == EventKind::kLoaded && step >= 0 && !in_hand) {
          visitor.access(step, s, event.group);
          stream.take_in_hand(event.group, step);
        }
        stream.stored.on_event(event);
        if (event.kind == EventKind::kCreated) stream.take_in_hand(event.group, step);
        if (event.kind == EventKind::kSplit && in_hand) stream.take_in_hand(event.other, step);
        visitor.event(step, s, event);
      });
    }
    visitor.end_step(step);
  }
}

/// A visitor that only lists accesses.
class Listing {
 public:
  explicit Listing(const std::vector<TargetStream>& streams) : streams_(streams) {}

  void access(std::int64_t step, std::int32_t stream, GroupId group) {
    const StoredStream& stored = streams_[static_cast<std::size_t>(stream)].stored;
    accesses.push_back({step, {{stream, group}, stored.group_bytes(group)}});
  }
  void event(std::int64_t, std::int32_t, const GroupEvent&) {}
  void end_step(std::int64_t) {}

  std::vector<TimedAccess> accesses;

 private:
  const std::vector<TargetStream>& streams_;
};

/// Counts what a cache alone finds, and nothing else.
class HitCounter {
 public:
  HitCounter(const std::vector<TargetStream>& streams, Cache& cache)
      : streams_(streams), cache_(cache) {}

  void access(std::int64_t, std::int32_t s, GroupId group) {
    const StoredStream& stored = streams_[static_cast<std::size_t>(s)].stored;
    const std::int64_t bytes = stored.group_bytes(group);
    if (cache_.access({{s, group}, bytes}, stored.groups().members(group))) hit_bytes_ += bytes;
  }
  void event(std::int64_t, std::int32_t s, const GroupEvent& event) {
    follow_event(cache_, s, event, streams_[static_cast<std::size_t>(s)].stored);
  }
  void end_step(std::int64_t step) {
    if (step < 0) return;
    cache_.end_step();
    hit_bytes_by_step.push_back(std::exchange(hit_bytes_, 0));
  }

  std::vector<std::int64_t> hit_bytes_by_step;

 private:
  const std::vector<TargetStream>& streams_;
  Cache& cache_;
  std::int64_t hit_bytes_ = 0;
};

class Placer {
 public:
  Placer(std::vector<TargetStream>& streams, Cache& cache, Layout& layout, const AccessLog& log,
         LayerPlan& plan, PlaceCheck* check)
      : streams_(streams),
        cache_(cache),
        layout_(layout),
        in_memory_(cache.holds_everything()),
        prompt_tokens_(log.prompt_tokens),
        turns_(log.turns),
        formats_(log.formats),
        last_step_(log.steps - 1),
        plan_(plan),
        step_reads_(plan.io.merge_reads),
        check_(check) {}

  void access(std::int64_t, std::int32_t s, GroupId group) {
    const StoredStream& stored = streams_[static_cast<std::size_t>(s)].stored;
    const std::int64_t bytes = stored.group_bytes(group);
    requested_bytes_ += bytes;
    decoded_entries_ += entries(s, group);
    if (cache_.access({{s, group}, bytes}, stored.groups().members(group))) {
      hit_bytes_ += bytes;
    } else {
      missed_bytes_ += bytes;
      fetched_entries_ += entries(s, group);
      step_reads_.locate(layout_, s, group, stored, reads_);
      if (check_ != nullptr) {
        std::vector<Extent> alone;  // in reads_, neighbours of other groups may have been merged
        layout_.locate(s, group, stored, alone);
        check_->read(alone, bytes, layout_.held_bytes());
      }
    }
  }

  void event(std::int64_t, std::int32_t s, const GroupEvent& event) {
    if (in_memory_) return;
    if (event.kind == EventKind::kCreated || event.kind == EventKind::kSplit) {
      regrouped_entries_ += entries(s, event.group);
    }
    if (event.kind == EventKind::kSplit) regrouped_entries_ += entries(s, event.other);
    const StoredStream& stored = streams_[static_cast<std::size_t>(s)].stored;
    follow_event(cache_, s, event, stored);
    layout_.notify_event(s, event, stored, traffic_);
  }

  void end_step(std::int64_t step) {
    std::int64_t grouped_bytes = 0;
    std::int64_t buffered_bytes = 0;
    std::int64_t own_bytes = 0;
    plan_.dram.entries_bytes = 0;
    const std::int64_t tokens = prompt_tokens_ + step + 1;
    for (const TargetStream& stream : streams_) {
      grouped_bytes += stream.stored.grouped_bytes();
      buffered_bytes += stream.stored.buffered_bytes(tokens);
      own_bytes += stream.stored.entry_bytes(static_cast<Token>(tokens));
      plan_.dram.entries_bytes += stream.stored.all_bytes(tokens);
    }
    if (step < 0) {
      for (std::size_t s = 0; s < streams_.size() && !in_memory_; ++s) {
        layout_.end_prompt(static_cast<std::int32_t>(s), streams_[s].stored, traffic_);
      }
      if (check_ != nullptr) check_->wrote(traffic_.writes);
      if (!in_memory_) {
        plan_.io.prompt_write_bytes = static_cast<std::uint64_t>(grouped_bytes);
        list_prompt_writes();
      }
      traffic_.writes.clear();
      traffic_.moved_reads.clear();
      regrouped_entries_ = 0;
    } else {
      if (check_ != nullptr) check_->wrote(traffic_.writes);
      cache_.end_step();
      finish_step();
    }
    if (check_ != nullptr) check_state(tokens);
    if (plan_.io.cache_paged) {
      plan_.io.cache_read_begin.push_back(std::ssize(plan_.io.cache_reads));
      locate_held();
    }
    const std::int64_t cache_bytes = in_memory_ ? grouped_bytes : cache_.used_bytes();
    if (cache_bytes >= plan_.dram.cache_bytes) {
      plan_.dram.cache_bytes = cache_bytes;
      plan_.growth.newest_bytes = in_memory_ ? newest_bytes(tokens) : 0;
    }
    if (step == last_step_) note_capacity(grouped_bytes);
    plan_.dram.buffered_bytes =
        std::max(plan_.dram.buffered_bytes, buffered_bytes + own_bytes + layout_.held_bytes());
    plan_.io.region_bytes = in_memory_ ? 0 : layout_.region_bytes();
    plan_.io.live_bytes = in_memory_ ? 0 : static_cast<std::uint64_t>(grouped_bytes);
    for (std::size_t turn = 1; turn < turns_.size(); ++turn) {
      if (turns_[turn].begin == step + 1) {
        list_turn(in_memory_ ? grouped_bytes : 0, buffered_bytes + layout_.held_bytes());
      }
    }
  }

 private:
  /// By how much the newest entries exceed the bytes of others.
  [[nodiscard]] std::int64_t newest_bytes(std::int64_t tokens) const {
    const auto usual = static_cast<std::int32_t>(std::ssize(formats_)) - 1;
    std::int64_t bytes = 0;
    for (std::int32_t format = 0; format < usual; ++format) {
      if (!formats_[static_cast<std::size_t>(format)].newest) continue;
      for (const TargetStream& stream : streams_) {
        bytes += stream.stored.tokens_in(format, tokens) *
                 (stream.stored.format_bytes(format) - stream.stored.format_bytes(usual));
      }
    }
    return bytes;
  }
  void note_capacity(std::int64_t grouped_bytes) {
    std::int64_t groups = 0;
    for (const TargetStream& stream : streams_) groups += stream.stored.groups().live_groups();
    if (groups == 0) return;
    plan_.growth.capacity_bytes = cache_.capacity_bytes(grouped_bytes / groups);
    // A few groups of the last steps may not have been asked for yet.
    plan_.growth.holds_all =
        plan_.growth.capacity_bytes > 0 && cache_.used_bytes() >= grouped_bytes / 20 * 19;
  }
  void check_state(std::int64_t tokens) const {
    std::vector<const StoredStream*> stored;
    for (const TargetStream& stream : streams_) stored.push_back(&stream.stored);
    PlaceCheck::end_step(stored, cache_, layout_, tokens);
    const LayerPlan::Accounting& counted = plan_.accounting;
    if (!counted.requested_bytes.empty() &&
        counted.requested_bytes.back() != counted.hit_bytes.back() + counted.missed_bytes.back()) {
      throw std::logic_error("an invariant does not hold: requested bytes are hit or missed");
    }
  }
  void finish_step() {
    std::int64_t moved_bytes = 0;
    for (const Extent& extent : traffic_.moved_reads) {
      moved_bytes += static_cast<std::int64_t>(extent.bytes);
    }
    reads_.insert(reads_.end(), traffic_.moved_reads.begin(), traffic_.moved_reads.end());
    step_reads_.arrange(reads_);
    finish(reads_, plan_.io.reads, plan_.io.read_begin);
    coalesce(traffic_.writes);
    finish(traffic_.writes, plan_.io.writes, plan_.io.write_begin);
    traffic_.moved_reads.clear();

    assert(requested_bytes_ == hit_bytes_ + missed_bytes_);
    plan_.accounting.requested_bytes.push_back(std::exchange(requested_bytes_, 0));
    plan_.accounting.hit_bytes.push_back(std::exchange(hit_bytes_, 0));
    plan_.dram.fetched_bytes = std::max(plan_.dram.fetched_bytes, missed_bytes_);
    plan_.accounting.missed_bytes.push_back(std::exchange(missed_bytes_, 0));
    plan_.accounting.moved_bytes.push_back(moved_bytes);
    for (auto [values, value] : {std::pair{&plan_.compute.fetched_entries, &fetched_entries_},
                                 {&plan_.compute.decoded_entries, &decoded_entries_},
                                 {&plan_.compute.regrouped_entries, &regrouped_entries_}}) {
      const std::int64_t counted = std::exchange(*value, 0);
      values->push_back(in_memory_ ? 0 : counted);
    }
  }
  /// Of the group, once per KV head.
  [[nodiscard]] std::int64_t entries(std::int32_t s, GroupId group) const {
    const TargetStream& stream = streams_[static_cast<std::size_t>(s)];
    return stream.kv_heads * std::ssize(stream.stored.groups().members(group));
  }
  /// The groups that the next step finds in the cache.
  void locate_held() {
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      const auto stream = static_cast<std::int32_t>(s);
      const StoredStream& stored = streams_[s].stored;
      for (GroupId group = 0; group < stored.groups().count(); ++group) {
        if (cache_.contains({stream, group})) {
          fetched_entries_ += entries(stream, group);
          step_reads_.locate(layout_, stream, group, stored, held_);
        }
      }
    }
    step_reads_.arrange(held_);
    plan_.io.cache_reads.insert(plan_.io.cache_reads.end(), held_.begin(), held_.end());
    held_.clear();
  }
  /// Where the entries lie as a turn begins.
  void list_turn(std::int64_t memory_bytes, std::int64_t buffered_bytes) {
    LayerPlan::Turns& turns = plan_.turns;
    std::vector<Extent> live;
    std::vector<Extent> cached;
    for (std::size_t s = 0; s < streams_.size() && !in_memory_; ++s) {
      const auto stream = static_cast<std::int32_t>(s);
      const StoredStream& stored = streams_[s].stored;
      for (GroupId group = 0; group < stored.groups().count(); ++group) {
        if (stored.groups().members(group).empty()) continue;
        const bool held = cache_.contains({stream, group});
        layout_.locate(stream, group, stored, held ? cached : live);
      }
    }
    coalesce(live);
    coalesce(cached);
    finish(live, turns.live, turns.live_begin);
    finish(cached, turns.cached, turns.cached_begin);
    turns.memory_bytes.push_back(memory_bytes);
    turns.buffered_bytes.push_back(buffered_bytes);
  }
  /// The groups that the prompt leaves on flash, each when its last token is known.
  void list_prompt_writes() {
    bool whole_prompt = false;
    for (const TargetStream& stream : streams_) {
      whole_prompt = whole_prompt || stream.log->prompt_work.whole_prompt;
    }
    std::map<std::int64_t, std::vector<Extent>> ready;  // by the tokens that a range needs
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      const StoredStream& stored = streams_[s].stored;
      for (GroupId group = 0; group < stored.groups().count(); ++group) {
        const std::vector<Token>& members = stored.groups().members(group);
        if (members.empty()) continue;
        std::int64_t needed = prompt_tokens_;
        if (!whole_prompt) {
          needed = *std::max_element(members.begin(), members.end()) + 1;
          needed = (needed + kPromptPieceTokens - 1) / kPromptPieceTokens * kPromptPieceTokens;
          needed = std::min(needed, prompt_tokens_);
        }
        layout_.locate(static_cast<std::int32_t>(s), group, stored, ready[needed]);
      }
    }
    for (auto& [tokens, extents] : ready) {
      coalesce(extents);
      for (const Extent& extent : extents) {
        plan_.io.prompt_writes.push_back(extent);
        plan_.io.prompt_ready.push_back(tokens);
      }
    }
  }
  /// Ascending; merged where they touch, or as the groups lie.
  static void finish(std::vector<Extent>& of_step, std::vector<Extent>& all,
                     std::vector<std::int64_t>& begin) {
    all.insert(all.end(), of_step.begin(), of_step.end());
    begin.push_back(std::ssize(all));
    of_step.clear();
  }

  std::vector<TargetStream>& streams_;
  Cache& cache_;
  Layout& layout_;
  bool in_memory_;
  std::int64_t prompt_tokens_;
  std::span<const TurnSteps> turns_;
  std::span<const EntryFormat> formats_;
  std::int64_t last_step_;
  LayerPlan& plan_;
  StepReads step_reads_;
  PlaceCheck* check_;  ///< null: nothing is checked

  // Of the current step.
  std::vector<Extent> reads_;
  std::vector<Extent> held_;
  LayoutTraffic traffic_;
  std::int64_t requested_bytes_ = 0;
  std::int64_t hit_bytes_ = 0;
  std::int64_t missed_bytes_ = 0;
  std::int64_t fetched_entries_ = 0;
  std::int64_t decoded_entries_ = 0;
  std::int64_t regrouped_entries_ = 0;
};

/// Scoring costs, and the number of tokens attended to.
void add_compute(const std::vector<TargetStream>& streams, std::int64_t steps,
                 std::span<const TurnSteps> turns, bool in_memory, LayerPlan& plan) {
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    double attended = 0;
    std::int64_t score_bytes = 0;
    std::int64_t score_flops = 0;
    std::int64_t held_bytes = 0;
    std::int64_t buffered = 0;
    for (const TargetStream& stream : streams) {
      const StreamLog& log = *stream.log;
      const auto first = log.attended_count.begin() + step * log.query_heads;
      attended +=
          static_cast<double>(std::accumulate(first, first + log.query_heads, std::int64_t{0})) /
          static_cast<double>(log.query_heads);
      score_bytes += stream.by_kv_heads(log.score_bytes[at]);
      score_flops += stream.by_query_heads(log.score_flops[at]);
      held_bytes += stream.by_kv_heads(log.held_bytes[at]);
      buffered += stream.kv_heads * log.buffered_tokens[at];
    }
    plan.compute.attended_tokens.push_back(attended / static_cast<double>(streams.size()));
    plan.compute.score_bytes.push_back(score_bytes);
    plan.compute.score_flops.push_back(score_flops);
    plan.compute.buffered_entries.push_back(in_memory ? 0 : buffered);
    plan.dram.index_bytes = std::max(plan.dram.index_bytes, held_bytes);
  }
  for (const TargetStream& stream : streams) {
    plan.growth.index_fixed_bytes += stream.by_kv_heads(stream.log->held_fixed_bytes);
    plan.growth.index_prompt_bytes += stream.by_kv_heads(stream.log->held_prompt_bytes);
  }
  for (std::size_t turn = 1; turn < turns.size(); ++turn) {
    std::int64_t held_bytes = 0;
    for (const TargetStream& stream : streams) {
      const auto at = static_cast<std::size_t>(turns[turn].begin);
      held_bytes += stream.by_kv_heads(stream.log->held_bytes[at]);
    }
    plan.turns.index_bytes.push_back(held_bytes);
  }
  for (const TargetStream& stream : streams) {
    const PromptWork& work = stream.log->prompt_work;
    plan.prompt.flops += stream.by_kv_heads(work.flops);
    plan.prompt.square_flops += stream.by_kv_heads(work.square_flops);
    plan.prompt.bytes += stream.by_kv_heads(work.bytes);
    plan.prompt.factorise_flops += stream.by_kv_heads(work.factorise_flops);
    plan.prompt.similarities += stream.by_kv_heads(work.similarities);
  }
}

LayerPlan place_full_attention(const AccessLog& log, const LayerLog& layer, const KvShape& target) {
  const auto steps = static_cast<std::size_t>(log.steps);
  LayerPlan plan;
  plan.full_attention = true;
  plan.sliding_window = layer.sliding_window;
  plan.io.read_begin.assign(steps + 1, 0);
  plan.io.write_begin.assign(steps + 1, 0);
  LayerPlan::Accounting& counted = plan.accounting;
  for (auto* values :
       {&counted.requested_bytes, &counted.hit_bytes, &counted.missed_bytes,
        &counted.best_hit_bytes, &counted.moved_bytes, &plan.compute.score_bytes,
        &plan.compute.score_flops, &plan.compute.fetched_entries, &plan.compute.decoded_entries,
        &plan.compute.buffered_entries, &plan.compute.regrouped_entries}) {
    values->assign(steps, 0);
  }
  for (std::int64_t step = 0; step < log.steps; ++step) {
    plan.compute.attended_tokens.push_back(
        static_cast<double>(visible_tokens(log.prompt_tokens + step + 1, layer.sliding_window)));
  }
  plan.dram.entries_bytes =
      (log.prompt_tokens + log.steps) * format_bytes(log, target.kv_heads, target).front();
  return plan;
}

/// Gives an oracle all accesses to come.
void set_future_accesses(Cache& cache, const AccessLog& log, const LayerLog& layer,
                         const KvShape& target) {
  std::vector<TargetStream> streams = target_streams(log, layer, target);
  Listing listing(streams);
  walk(streams, log.steps, listing);
  std::vector<Access> future;
  future.reserve(listing.accesses.size());
  for (const TimedAccess& timed : listing.accesses) future.push_back(timed.access);
  cache.set_future_accesses(future);
}

/// The hits of the oracle with the cache's capacity.
void add_bound(const AccessLog& log, const OracleBounds::Layer& at, const PartConfig<Cache>& cache,
               const KvShape& target, OracleBounds& bounds, LayerPlan& plan) {
  const LayerLog& layer = log.layers[at.index];
  std::vector<TargetStream> streams = target_streams(log, layer, target);
  const Cache::Context context{
      .streams = std::ssize(streams),
      .entry_bytes = format_bytes(log, streams.front().kv_heads, target).front()};
  // Where the cache keeps nothing or misses nothing, no other cache of its capacity differs.
  if (plan.dram.cache_bytes == 0 || cache.make(context)->holds_everything()) {
    plan.accounting.best_hit_bytes = plan.accounting.hit_bytes;
    return;
  }
  const OracleCapacity capacity = oracle_capacity(cache, plan.dram.cache_bytes);
  plan.accounting.best_hit_bytes = bounds.get(at, capacity, [&] {
    const std::unique_ptr<Cache> oracle = oracle_with(capacity, context);
    set_future_accesses(*oracle, log, layer, target);
    HitCounter counter(streams, *oracle);
    walk(streams, log.steps, counter);
    return std::move(counter.hit_bytes_by_step);
  });
}

LayerPlan place_layer(const AccessLog& log, const OracleBounds::Layer& at, const PlaceSpec& spec,
                      const KvShape& target, OracleBounds& bounds, bool check) {
  const LayerLog& layer = log.layers[at.index];
  if (layer.full_attention) return place_full_attention(log, layer, target);
  LayerPlan plan;
  plan.sliding_window = layer.sliding_window;
  std::vector<TargetStream> streams = target_streams(log, layer, target);
  if (streams.empty()) throw std::logic_error("a layer that selects, without streams");
  const std::vector<std::int64_t> bytes = format_bytes(log, streams.front().kv_heads, target);
  const auto count = static_cast<std::int64_t>(streams.size());
  std::vector<WindowSelections> window;
  for (const TargetStream& stream : streams) {
    window.push_back({stream.log->window_begin, stream.log->window_requested});
  }
  const std::unique_ptr<Cache> cache =
      spec.cache.make({.streams = count, .entry_bytes = bytes.front()});
  const std::unique_ptr<Layout> layout =
      spec.layout.make({.streams = count,
                        .entry_bytes = *std::max_element(bytes.begin(), bytes.end()),
                        .max_tokens = log.prompt_tokens + log.steps,
                        .window = std::move(window)});
  plan.io.cache_paged = cache->paged_by_layer();
  plan.io.merge_reads = spec.merges_reads();
  if (cache->needs_future()) set_future_accesses(*cache, log, layer, target);
  PlaceCheck checker;
  walk(streams, log.steps, Placer(streams, *cache, *layout, log, plan, check ? &checker : nullptr));
  if (plan.io.cache_paged) {
    // No step reads what the cache holds after the last one.
    plan.io.cache_reads.resize(static_cast<std::size_t>(plan.io.cache_read_begin.back()));
  }
  add_compute(streams, log.steps, log.turns, cache->holds_everything(), plan);
  add_bound(log, at, spec.cache, target, bounds, plan);
  return plan;
}

/// A log of a test may not say who decided.
void note_parts(const AccessLog& log, IoPlan& plan) {
  const auto config = nlohmann::json::parse(log.decide_config, nullptr, false);
  if (!config.is_object()) return;
  const auto text = [&](const char* role, const char* member) {
    const auto found = config.find(role);
    return found == config.end() ? std::string() : found->value(member, std::string());
  };
  plan.grouping = text("grouping", "part");
  plan.scoring = text("scoring", "part");
  plan.precision = text("precision", "part");
  plan.looks_ahead = text("stream", "query") == "look_ahead";
  for (const LayerLog& layer : log.layers) {
    for (const StreamLog& stream : layer.streams) plan.heads_select_alone |= stream.rows > 1;
  }
}

void check(const AccessLog& log, const KvShape& target) {
  const auto valid = [](std::int64_t query_heads, std::int64_t kv_heads, std::int64_t head_dim) {
    return kv_heads > 0 && head_dim > 0 && query_heads > 0 && query_heads % kv_heads == 0;
  };
  if (!valid(log.query_heads, log.kv_heads, log.head_dim) ||
      !valid(target.query_heads, target.kv_heads, target.head_dim)) {
    throw std::logic_error("a shape whose query heads are no multiple of its KV heads");
  }
}

}  // namespace

PlaceSpec PlaceSpec::parse(const ConfigNode& system) {
  PlaceSpec spec;
  bool in_memory = false;
  for_parts(spec, [&]<typename Role>(PartConfig<Role>& chosen) {
    const bool needs_none = std::is_same_v<Role, Layout> && in_memory;
    chosen =
        PartConfig<Role>::parse_member(system, needs_none ? "sequence" : default_part_of<Role>());
    // Constructing the part finds errors that no single parameter shows, while the config is at
    // hand.
    const std::unique_ptr<Role> made = chosen.make({});
    if constexpr (std::is_same_v<Role, Cache>) in_memory = made->holds_everything();
  });
  return spec;
}

bool PlaceSpec::has_capacity() const {
  const auto& all = cache.arguments().all();
  return std::any_of(all.begin(), all.end(),
                     [](const auto& named) { return named.first.starts_with("capacity_"); });
}

std::string PlaceSpec::resolved() const {
  nlohmann::json object;
  for_parts(*this, [&]<typename Role>(const PartConfig<Role>& chosen) {
    object[std::string(Role::kRole)] = part_json(chosen.name(), chosen.arguments());
  });
  return object.dump();
}

namespace {

std::span<const Extent> extents_at(const std::vector<Extent>& extents,
                                   const std::vector<std::int64_t>& begin, std::int64_t step) {
  const auto at = static_cast<std::size_t>(step);
  return std::span(extents).subspan(static_cast<std::size_t>(begin[at]),
                                    static_cast<std::size_t>(begin[at + 1] - begin[at]));
}

}  // namespace

std::span<const Extent> LayerPlan::Io::reads_at(std::int64_t step) const {
  return extents_at(reads, read_begin, step);
}

std::span<const Extent> LayerPlan::Io::writes_at(std::int64_t step) const {
  return extents_at(writes, write_begin, step);
}

std::span<const Extent> LayerPlan::Io::cache_reads_at(std::int64_t step) const {
  return cache_paged ? extents_at(cache_reads, cache_read_begin, step) : std::span<const Extent>{};
}

std::span<const Extent> LayerPlan::Turns::live_at(std::int64_t turn) const {
  return extents_at(live, live_begin, turn);
}

std::span<const Extent> LayerPlan::Turns::cached_at(std::int64_t turn) const {
  return extents_at(cached, cached_begin, turn);
}

const OracleBounds::HitBytes& OracleBounds::get(const Layer& layer, const OracleCapacity& capacity,
                                                const std::function<HitBytes()>& compute) {
  Bound* bound = nullptr;
  {
    const std::lock_guard guard(mutex_);
    bound = &bounds_[{layer, capacity}];
  }
  std::call_once(bound->once, [&] { bound->hit_bytes = compute(); });
  return bound->hit_bytes;
}

IoPlan place(const AccessLog& log, const PlaceSpec& spec, const KvShape& target,
             OracleBounds* bounds, bool check_invariants) {
  return place(log, spec, std::span(&target, 1), bounds, check_invariants);
}

IoPlan place(const AccessLog& log, const PlaceSpec& spec, std::span<const KvShape> kinds,
             OracleBounds* bounds, bool check_invariants) {
  OracleBounds own;
  if (bounds == nullptr) bounds = &own;
  IoPlan plan{.system = log.system,
              .kinds = std::vector<KvShape>(kinds.begin(), kinds.end()),
              .prompt_tokens = log.prompt_tokens,
              .steps = log.steps,
              .full_attention_layers = log.full_attention_layers,
              .layers = {},
              .bound = log.bound,
              .cache_has_capacity = spec.has_capacity(),
              .turns = log.turns};
  note_parts(log, plan);
  for (std::int64_t kind = 0; kind < std::ssize(kinds); ++kind) {
    const KvShape& target = kinds[static_cast<std::size_t>(kind)];
    check(log, target);
    for (std::size_t index = 0; index < log.layers.size(); ++index) {
      const std::int64_t window = log.layers[index].sliding_window;
      if (target.sliding_window.value_or(window) != window) continue;
      plan.layers.push_back(
          place_layer(log, {index, kind}, spec, target, *bounds, check_invariants));
      plan.layers.back().kind = kind;
    }
  }
  return plan;
}

std::vector<TimedAccess> access_sequence(const AccessLog& log, std::size_t layer,
                                         const KvShape& target) {
  check(log, target);
  if (log.layers.at(layer).full_attention) return {};
  std::vector<TargetStream> streams = target_streams(log, log.layers[layer], target);
  Listing listing(streams);
  walk(streams, log.steps, listing);
  return std::move(listing.accesses);
}

Mean read_length(const LayerPlan& plan) {
  Mean mean;
  for (const Extent& read : plan.io.reads) mean.add(static_cast<double>(read.bytes));
  return mean;
}

}  // namespace kvreplay
