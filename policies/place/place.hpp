#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/extent.hpp"
#include "base/statistics.hpp"
#include "policies/decide/log/access_log.hpp"
#include "policies/place/cache/cache.hpp"
#include "policies/place/cache/support/oracle.hpp"
#include "policies/place/layout/layout.hpp"

namespace kvreplay {

/// The stage-2 half of a system.
struct PlaceSpec {
  static constexpr Stage kStage = Stage::kPlace;
  /// From the members of a system's JSON object that this stage reads; it ignores the others. The
  /// layout may be left out where the cache holds everything.
  [[nodiscard]] static PlaceSpec parse(const ConfigNode& system);

  PartConfig<Cache> cache;
  PartConfig<Layout> layout;

  /// Whether the cache holds a number of groups or bytes that its parameters give.
  [[nodiscard]] bool has_capacity() const;
  /// merge_reads_parameter() of the layout.
  [[nodiscard]] bool merges_reads() const { return layout.arguments().flag("merge_reads"); }

  /// Calls visit(chosen) for every part of `spec`, a PlaceSpec. This list of the stage's roles is
  /// the only one: parsing, content hashes, settings and pages follow from it.
  template <typename Spec, typename Visit>
  static void for_parts(Spec& spec, Visit&& visit) {
    for_parts_of<kStage>(visit, spec.cache, spec.layout);
  }

  /// Resolved parts and arguments as canonical JSON: what a content hash takes.
  [[nodiscard]] std::string resolved() const;
};

/// The shape that a plan is made for: that of the recorded model, or of a larger one by projection.
/// A model whose layers differ has one shape for each kind of layer.
struct KvShape {
  std::int64_t layers = 0;  ///< of the whole model
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool one_vector = false;  ///< key and value are one vector, stored once
  /// Follows the layers that were decided under this sliding window, 0 = none; nullopt: any layer.
  std::optional<std::int64_t> sliding_window{};
  friend auto operator<=>(const KvShape&, const KvShape&) = default;
};

/// What one layer of one sequence does at every step, in three parts for three readers: device I/O,
/// compute and DRAM. The fourth part, the accounting, is for results.
struct LayerPlan {
  /// Offsets lie in [0, region_bytes).
  struct Io {
    std::vector<std::int64_t> read_begin{0};   ///< [steps + 1]
    std::vector<Extent> reads;                 ///< ascending within a step
    bool merge_reads = true;                   ///< reads that touch are one; false: as requested
    std::vector<std::int64_t> write_begin{0};  ///< [steps + 1]
    std::vector<Extent> writes;                ///< ascending within a step, neighbours merged
    /// The extents of the groups that a cache paged by layer holds as the step begins. Both arrays
    /// are empty for other caches.
    std::vector<std::int64_t> cache_read_begin;  ///< [steps + 1]
    std::vector<Extent> cache_reads;             ///< as reads
    bool cache_paged = false;
    std::uint64_t prompt_write_bytes = 0;  ///< all groups at the end of the prompt, once
    /// Where they lie, prompt_write_bytes in sum: by prompt_ready, then ascending, neighbours
    /// merged.
    std::vector<Extent> prompt_writes;
    /// [prompt_writes]: how many of the prompt's tokens must be known before the range can be
    /// written; in steps of kPromptPieceTokens, but for the last.
    std::vector<std::int64_t> prompt_ready;
    std::uint64_t region_bytes = 0;
    std::uint64_t live_bytes = 0;  ///< of all groups at the end; the rest of the region is unused

    [[nodiscard]] std::span<const Extent> reads_at(std::int64_t step) const;
    [[nodiscard]] std::span<const Extent> writes_at(std::int64_t step) const;
    [[nodiscard]] std::span<const Extent> cache_reads_at(std::int64_t step) const;
  };

  /// [steps] each.
  struct Compute {
    std::vector<double> attended_tokens;    ///< mean over query heads, including the step's own
    std::vector<std::int64_t> score_bytes;  ///< projected
    std::vector<std::int64_t> score_flops;
    // Entries, each counted once per KV head of its stream; 0 where all are in memory.
    std::vector<std::int64_t> fetched_entries;    ///< of groups that are read for the step
    std::vector<std::int64_t> decoded_entries;    ///< of requested groups
    std::vector<std::int64_t> buffered_entries;   ///< outside groups
    std::vector<std::int64_t> regrouped_entries;  ///< of groups that the step makes or splits
  };

  /// PromptWork of the layer's streams, projected.
  struct Prompt {
    std::int64_t flops = 0;
    std::int64_t square_flops = 0;
    std::int64_t bytes = 0;
    std::int64_t factorise_flops = 0;
    std::int64_t similarities = 0;
  };

  /// Peaks over the steps for one sequence at this layer, by use.
  struct Dram {
    std::int64_t cache_bytes = 0;
    std::int64_t buffered_bytes = 0;  ///< entries outside groups, including the step's own
    std::int64_t index_bytes = 0;
    std::int64_t fetched_bytes = 0;  ///< most bytes missed in a step: the read buffer
    /// Entries of all tokens at the end of the trace, each in its format, wherever they are;
    /// evicted ones count as if they were kept. Under full attention DRAM holds these bytes, or the
    /// share of them inside a sliding window, and the four numbers above are 0.
    std::int64_t entries_bytes = 0;
  };

  /// What a longer sequence would have of the above.
  struct Growth {
    std::int64_t index_fixed_bytes = 0;   ///< of Dram::index_bytes, what does not grow
    std::int64_t index_prompt_bytes = 0;  ///< and what grows with the prompt's tokens
    /// Of Dram::cache_bytes, by how much the newest entries (EntryFormat::newest) exceed others.
    std::int64_t newest_bytes = 0;
    std::int64_t capacity_bytes = 0;  ///< of a cache that has one, of such groups as these
    bool holds_all = false;           ///< at the end such a cache holds every group that there is
  };

  /// [steps] each. Conservation: requested_bytes == hit_bytes + missed_bytes. Io::reads cover
  /// missed_bytes, and the data that the layout moves.
  struct Accounting {
    std::vector<std::int64_t> requested_bytes;
    std::vector<std::int64_t> hit_bytes;
    std::vector<std::int64_t> missed_bytes;
    /// What belady would have hit with the cache's capacity or, for a cache without one, its peak.
    /// For equal-sized, immutable groups, no demand cache can hit more over all steps.
    std::vector<std::int64_t> best_hit_bytes;
    std::vector<std::int64_t> moved_bytes;  ///< read by the layout only to move them
  };

  /// What lies where as each turn of a conversation after the first begins; empty under full
  /// attention. Item i of the flat arrays is turn i + 1.
  struct Turns {
    std::vector<std::int64_t> live_begin{0};
    std::vector<Extent> live;  ///< of groups that only flash holds, ascending, neighbours merged
    std::vector<std::int64_t> cached_begin{0};
    std::vector<Extent> cached;                ///< of groups that the cache holds too, likewise
    std::vector<std::int64_t> memory_bytes;    ///< of groups that only memory holds
    std::vector<std::int64_t> buffered_bytes;  ///< of entries outside groups
    std::vector<std::int64_t> index_bytes;     ///< beside the entries: representatives

    [[nodiscard]] std::int64_t count() const { return std::ssize(index_bytes); }
    [[nodiscard]] std::span<const Extent> live_at(std::int64_t turn) const;
    [[nodiscard]] std::span<const Extent> cached_at(std::int64_t turn) const;
  };

  bool full_attention = false;      ///< LayerLog::full_attention: all in memory, no I/O
  std::int64_t sliding_window = 0;  ///< LayerLog's: what left it is neither stored nor read
  std::int64_t kind = 0;            ///< of IoPlan::kinds
  Io io;
  Compute compute;
  Dram dram;
  Accounting accounting;
  Prompt prompt;  ///< the index of the prompt
  Turns turns{};
  Growth growth{};
};

/// Writes of the prompt are told apart by the tokens that they need, in steps of this many.
inline constexpr std::int64_t kPromptPieceTokens = 64;

/// What stage 2 placed for a model of the given shapes: for each kind of layer, one plan per
/// decided layer that the kind follows. Layer i of the model follows plan i mod R of the R plans of
/// its kind without full attention.
struct IoPlan {
  std::string system;
  std::vector<KvShape> kinds;
  std::int64_t prompt_tokens = 0;
  std::int64_t steps = 0;
  std::int64_t full_attention_layers = 0;  ///< the model's first ones, as in AccessLog
  std::vector<LayerPlan> layers;
  AttendedBound bound{};  ///< AccessLog's
  bool cache_has_capacity = false;
  // Which parts decided, for costs that were measured by part.
  std::string grouping{};
  std::string scoring{};
  std::string precision{};
  bool looks_ahead = false;         ///< selects with queries computed for that alone
  bool heads_select_alone = false;  ///< query heads of a KV head attend to tokens of their own
  std::vector<TurnSteps> turns{};   ///< AccessLog's
};

/// Statistics of the ranges that the steps read, in bytes. (DynaKV, Figure 12, counts entries.)
[[nodiscard]] Mean read_length(const LayerPlan& plan);

/// What the oracle would have hit, by layer, kind and capacity, for one access log. It is shared by
/// plans that differ in the kind of cache or the layout. Thread-safe.
class OracleBounds {
 public:
  using HitBytes = std::vector<std::int64_t>;  ///< by step
  struct Layer {
    std::size_t index = 0;  ///< of AccessLog::layers
    std::int64_t kind = 0;  ///< of IoPlan::kinds
    friend auto operator<=>(const Layer&, const Layer&) = default;
  };
  /// Computes the bound unless it is known.
  const HitBytes& get(const Layer& layer, const OracleCapacity& capacity,
                      const std::function<HitBytes()>& compute);

 private:
  struct Bound {
    std::once_flag once;
    HitBytes hit_bytes;
  };
  std::mutex mutex_;
  std::map<std::pair<Layer, OracleCapacity>, Bound> bounds_;
};

/// Stage 2: replays an access log through a cache and a layout, for a model of the given shapes. KV
/// head g of the target uses recorded head g mod the number of recorded heads, and entries have the
/// target's bytes.
///
/// Within a step, its requests come first, in ascending order of stream and group, and then its
/// events in order of streams. A group named by a kLoaded event is requested too, unless the step
/// has already read or created it: a step reads no group twice.
///
/// `bounds` remembers LayerPlan::Accounting::best_hit_bytes for further plans of the same log and
/// shapes.
///
/// With `check`, a std::logic_error at the first step in which an invariant does not hold
/// (place_check.hpp); the plan is the same.
[[nodiscard]] IoPlan place(const AccessLog& log, const PlaceSpec& spec,
                           std::span<const KvShape> kinds, OracleBounds* bounds = nullptr,
                           bool check = false);
/// The same for a model whose layers are all of one shape.
[[nodiscard]] IoPlan place(const AccessLog& log, const PlaceSpec& spec, const KvShape& target,
                           OracleBounds* bounds = nullptr, bool check = false);

/// One access of a layer's cache, and its step.
struct TimedAccess {
  std::int64_t step = 0;
  Access access;
};

/// Every access that place() makes to the cache of a recorded layer, in order. It depends on
/// neither the cache nor the layout.
[[nodiscard]] std::vector<TimedAccess> access_sequence(const AccessLog& log, std::size_t layer,
                                                       const KvShape& target);

}  // namespace kvreplay
