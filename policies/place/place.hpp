#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
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

  /// Calls visit(chosen) for every part of `spec`, a PlaceSpec. This list of the stage's roles is
  /// the only one: parsing, content hashes, settings and pages follow from it.
  template <typename Spec, typename Visit>
  static void for_parts(Spec& spec, Visit&& visit) {
    for_parts_of<kStage>(visit, spec.cache, spec.layout);
  }

  /// Resolved parts and arguments as canonical JSON: what a content hash takes.
  [[nodiscard]] std::string resolved() const;
};

/// The shape that a plan is made for: the recorded model's, or a larger one's by projection.
struct KvShape {
  std::int64_t layers = 0;
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  friend bool operator==(const KvShape&, const KvShape&) = default;
};

/// What one layer of one sequence does at every step, in three parts for three readers: what goes
/// to the device, what is computed, what DRAM holds. The fourth is for whoever counts.
struct LayerPlan {
  /// Offsets lie in [0, region_bytes).
  struct Io {
    std::vector<std::int64_t> read_begin{0};   ///< [steps + 1]
    std::vector<Extent> reads;                 ///< neighbours merged, ascending within a step
    std::vector<std::int64_t> write_begin{0};  ///< [steps + 1]
    std::vector<Extent> writes;                ///< likewise
    /// Where the groups lie that the cache holds as the step begins, if it is paged by layer;
    /// otherwise both are empty.
    std::vector<std::int64_t> cache_read_begin;  ///< [steps + 1]
    std::vector<Extent> cache_reads;             ///< likewise
    bool cache_paged = false;
    std::uint64_t prompt_write_bytes = 0;  ///< all groups at the end of the prompt, once
    std::uint64_t region_bytes = 0;
    std::uint64_t live_bytes = 0;  ///< of all groups at the end: the rest of the region is unused

    [[nodiscard]] std::span<const Extent> reads_at(std::int64_t step) const;
    [[nodiscard]] std::span<const Extent> writes_at(std::int64_t step) const;
    [[nodiscard]] std::span<const Extent> cache_reads_at(std::int64_t step) const;
  };

  /// [steps] each.
  struct Compute {
    std::vector<double> attended_tokens;    ///< mean over query heads, the step's own included
    std::vector<std::int64_t> score_bytes;  ///< projected
    std::vector<std::int64_t> score_flops;
  };

  /// Of one sequence at this layer, peak over the steps, by use.
  struct Dram {
    std::int64_t cache_bytes = 0;
    std::int64_t buffered_bytes = 0;  ///< entries outside groups, the step's own included
    std::int64_t index_bytes = 0;
    std::int64_t fetched_bytes = 0;  ///< the largest step's missed bytes: where reads land
    /// All tokens' entries at the end of the trace, each in its format, wherever it is; evicted
    /// ones are counted as if they were kept. Under full attention this is what DRAM holds, and the
    /// four above are 0.
    std::int64_t entries_bytes = 0;
  };

  /// [steps] each. Conservation: requested_bytes == hit_bytes + missed_bytes; Io::reads cover
  /// missed_bytes, and the data that the layout moves.
  struct Accounting {
    std::vector<std::int64_t> requested_bytes;
    std::vector<std::int64_t> hit_bytes;
    std::vector<std::int64_t> missed_bytes;
    /// What belady with the cache's capacity would have hit: of groups of equal size, which do not
    /// change, no cache that reads on demand hits more over all steps. With the peak of a cache
    /// that has no capacity.
    std::vector<std::int64_t> best_hit_bytes;
    std::vector<std::int64_t> moved_bytes;  ///< read by the layout only to be written elsewhere
  };

  bool full_attention = false;  ///< LayerLog::full_attention: all in memory, no I/O
  Io io;
  Compute compute;
  Dram dram;
  Accounting accounting;
};

/// What stage 2 placed for a model of the given shape: one plan for each recorded layer. Layer i of
/// the model follows layers[i mod R] of the R that do not attend in full.
struct IoPlan {
  std::string system;
  KvShape shape;
  std::int64_t prompt_tokens = 0;
  std::int64_t steps = 0;
  std::int64_t full_attention_layers = 0;  ///< the model's first ones: AccessLog's number
  std::vector<LayerPlan> layers;
};

/// Over the ranges that the steps read, in bytes. (DynaKV, Figure 12, counts entries)
[[nodiscard]] Mean read_length(const LayerPlan& plan);

/// What the oracle would have hit, by layer and capacity, of one access log and shape. Plans that
/// differ in the kind of cache or the layout share it. Thread-safe.
class OracleBounds {
 public:
  using HitBytes = std::vector<std::int64_t>;  ///< by step
  /// Computes it where it is not known.
  const HitBytes& get(std::int64_t layer, const OracleCapacity& capacity,
                      const std::function<HitBytes()>& compute);

 private:
  struct Bound {
    std::once_flag once;
    HitBytes hit_bytes;
  };
  std::mutex mutex_;
  std::map<std::pair<std::int64_t, OracleCapacity>, Bound> bounds_;
};

/// Stage 2: replays an access log through a cache and a layout, for a model of the given shape: KV
/// head g of the target uses recorded head g mod the recorded heads, and entry bytes are the
/// target's.
///
/// Within a step the groups that it requests come first, streams and groups ascending, then the
/// step's events in the order of streams. A group that a kLoaded event names is requested too,
/// unless the step has read or made it already: what a step has in hand it reads once.
///
/// `bounds` remembers LayerPlan::Accounting::best_hit_bytes for further plans of the same log and
/// shape.
///
/// With `check`, a std::logic_error at the first step in which an invariant does not hold
/// (place_check.hpp); the plan is the same.
[[nodiscard]] IoPlan place(const AccessLog& log, const PlaceSpec& spec, const KvShape& target,
                           OracleBounds* bounds = nullptr, bool check = false);

/// One access of a layer's cache, with the step that it belongs to.
struct TimedAccess {
  std::int64_t step = 0;
  Access access;
};

/// Every access that place() makes to the cache of a recorded layer, in order. It depends on no
/// cache and no layout.
[[nodiscard]] std::vector<TimedAccess> access_sequence(const AccessLog& log, std::size_t layer,
                                                       const KvShape& target);

}  // namespace kvreplay
