#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "policies/decide/layer_policy.hpp"
#include "policies/place/layout/step_reads.hpp"
#include "policies/place/place.hpp"
#include "sim/live/held_entries.hpp"
#include "sim/live/live_io.hpp"
#include "sim/models/half_rows.hpp"
#include "sim/time/machine/machine.hpp"

namespace kvreplay {

/// Rows in which a layer's entries stand decoded while it computes: those in memory, by token.
struct DecodedRows {
  HalfRows keys;
  HalfRows values;

  DecodedRows(std::int64_t kv_heads, std::int64_t max_tokens, std::int64_t head_dim)
      : keys(kv_heads, max_tokens, head_dim), values(kv_heads, max_tokens, head_dim) {}
};

/// What a layer's own work took, in nanoseconds, and how much of it there was, over all steps. The
/// measured platform has a kernel for each (MeasuredKernels).
struct LiveLayerWork {
  std::int64_t score_ns = 0;   ///< scores and selection
  std::int64_t fetch_ns = 0;   ///< the cache is asked, reads are made of groups, slots come and go
  std::int64_t decode_ns = 0;  ///< of requested groups' entries into rows
  std::int64_t buffered_ns = 0;  ///< likewise of entries outside groups
  std::int64_t attend_ns = 0;
  std::int64_t append_ns = 0;  ///< the new entry: stored, grouped, and what is to be written
  std::int64_t index_ns = 0;   ///< what the policy does with the prompt, once
  // LayerPlan::Compute has the last four per step.
  std::int64_t score_flops = 0;
  std::int64_t attended_elements = 0;  ///< tokens * query heads * head_dim
  std::int64_t fetched_entries = 0;
  std::int64_t decoded_entries = 0;
  std::int64_t buffered_entries = 0;
  std::int64_t regrouped_entries = 0;

  LiveLayerWork& operator+=(const LiveLayerWork& other) {
    for (std::int64_t LiveLayerWork::*member :
         {&LiveLayerWork::score_ns, &LiveLayerWork::fetch_ns, &LiveLayerWork::decode_ns,
          &LiveLayerWork::buffered_ns, &LiveLayerWork::buffered_entries, &LiveLayerWork::attend_ns,
          &LiveLayerWork::append_ns, &LiveLayerWork::index_ns, &LiveLayerWork::score_flops,
          &LiveLayerWork::attended_elements, &LiveLayerWork::fetched_entries,
          &LiveLayerWork::decoded_entries, &LiveLayerWork::regrouped_entries}) {
      this->*member += other.*member;
    }
    return *this;
  }
};

/// Adds to a sum the time since it was made or last asked.
class LapTimer {
 public:
  void add_to(std::int64_t& sum_ns) {
    const std::int64_t now = monotonic_ns();
    sum_ns += now - last_;
    last_ = now;
  }

 private:
  std::int64_t last_ = monotonic_ns();
};

/// One layer of a live sequence whose entries lie on the target. It follows the policy's events
/// with the system's cache and layout as place() does; entries that are read, buffered, cached or
/// not yet written are in memory, in their stored form, and no others.
class LiveLayer final : public EntryHost {
 public:
  struct Options {
    std::int64_t prompt_tokens = 0;
    std::int64_t max_tokens = 0;
    Extent region;        ///< of the target, the layer's own: whole blocks
    Extent index_region;  ///< empty where representatives stay in memory
    DeviceLimits limits;
    bool check = false;  ///< keeps a copy of every stored entry, and compares what is read
    bool keep_extents = false;
    std::string target;  ///< as errors name it
  };
  using ReadNow = std::function<void(std::span<const IoCommand>, LiveIo::Reader&)>;

  /// `rows` and `memory` are shared by the layers, one of which computes at a time; `read_now`
  /// reads and waits.
  LiveLayer(const DecideSpec& decide, const PlaceSpec& place, const LayerShape& shape,
            const PolicyOptions& policy, const Options& options, DecodedRows& rows,
            EntryMemory& memory, ReadNow read_now);

  /// Takes the prompt's entries, which are exact, and starts to write them.
  void add_prompt(const Entries& entries, const QueryWindow& window, LiveIo& io);
  /// The prompt's entries have been written, and its buffers can go.
  [[nodiscard]] LiveIo::Batch& prompt_batch() { return prompt_batch_; }
  void end_prompt() { free_memory(prompt_image_); }

  // Of one step, in this order: on the processor's thread.
  void select(QueryRows scored);
  /// The step's own entry, [kv_heads, head_dim] each; outputs: [query_heads, head_dim].
  void attend(const float* key, const float* value, QueryRows queries, float* outputs);
  void add_token();

  // Transfers, as LiveWork has them.
  void start(TransferKind kind, LiveIo& io, LiveIo::Batch& batch);
  [[nodiscard]] bool go_on(TransferKind kind, LiveIo& io, LiveIo::Batch& batch);

  void on_event(std::int64_t first_kv_head, const GroupEvent& event) override;
  void on_stored(std::int64_t first_kv_head, Token token) override;

  [[nodiscard]] LayerPolicy& policy() { return policy_; }
  [[nodiscard]] bool needs_query() const { return policy_.looks_ahead(); }
  [[nodiscard]] const LiveLayerWork& work() const { return work_; }
  /// What this layer holds for itself at most, beside entries in slots: waiting blocks, all keys
  /// where scores need them.
  [[nodiscard]] std::int64_t held_bytes() const;
  /// Reads of blocks of which a step wrote a part only.
  [[nodiscard]] std::int64_t base_reads() const { return base_reads_; }
  [[nodiscard]] std::int64_t checked_entries() const { return checked_entries_; }
  /// Of LayerPlan::Io, where they are kept.
  [[nodiscard]] const LayerPlan::Io& extents() const { return extents_; }

 private:
  struct PlacedPiece {
    std::int32_t stream = 0;
    EntryPiece piece;  ///< offsets of the target
    std::byte* slot = nullptr;
  };
  /// Reads of entries, which go to their slots.
  class EntryReads final : public LiveIo::Reader {
   public:
    void on_read(const IoCommand& command, std::span<const std::byte> bytes) override;

    LiveLayer* layer = nullptr;
    std::vector<IoCommand> commands;
    std::vector<PlacedPiece> pieces;  // ascending
    std::vector<Extent> extents;      // of the region

    /// Frees what a step needed: other layers need as much of it.
    void clear() {
      free_memory(commands);
      free_memory(pieces);
      free_memory(extents);
    }
  };
  /// An entry that is not on the target, or not yet: `uncovered` is what no write has taken.
  struct Unsettled {
    std::uint64_t generation = 0;
    std::vector<EntryPiece> pieces;  // of the region
    std::vector<Extent> uncovered;
    bool settling = false;
  };
  struct Stream {
    StoredStream stored;
    HeldEntries held;
    std::vector<std::int64_t> in_hand{};  // by group: the last step that read or made it
    std::unordered_map<Token, Unsettled> unsettled{};
    std::vector<bool> on_target{};   // by token: it has joined a group before
    std::vector<GroupId> touched{};  // by the step's events: groups whose entries may be written
    std::vector<std::vector<std::byte>> copies{};  // by token, for Options::check
  };
  struct Settling {
    std::int32_t stream = 0;
    Token token = 0;
    std::uint64_t generation = 0;
  };
  /// A step's writes: blocks are read first where only a part of them is known.
  class BlockWrites final : public LiveIo::Reader {
   public:
    void on_read(const IoCommand& command, std::span<const std::byte> bytes) override;
    /// A block of `bytes`, null where it is not among those that are written.
    [[nodiscard]] std::byte* find(std::uint64_t offset);

    struct Known {
      std::uint64_t offset = 0;  // of the target
      std::size_t at = 0;        // in `known_bytes`
      std::size_t bytes = 0;
    };
    std::vector<IoCommand> commands;
    std::vector<IoCommand> base;
    std::vector<std::byte> bytes;  // of the commands, one after the other
    std::vector<Known> known;
    std::vector<std::byte> known_bytes;
    std::vector<Settling> settling;
    std::vector<std::uint64_t> partial;  // blocks of which only a part is known
    bool has_base = false;               // the base has been read
  };
  /// A block as it was last written, by its offset in the target.
  struct Block {
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };

  [[nodiscard]] Stream& stream(std::size_t index) { return streams_[index]; }
  [[nodiscard]] std::size_t stream_of(std::int64_t first_kv_head) const {
    return static_cast<std::size_t>(first_kv_head / heads_per_stream_);
  }
  [[nodiscard]] Entries entries(std::int64_t tokens) const;
  /// Decodes a held token into the rows.
  void show(std::size_t s, Token token);
  void show_group(std::size_t s, GroupId group);
  void request(std::size_t s, GroupId group, EntryReads& reads);
  /// A std::logic_error where the token is not in memory.
  static void check_held(const Stream& here, Token token);
  void take_in_hand(std::size_t s, GroupId group);
  [[nodiscard]] bool is_in_hand(std::size_t s, GroupId group) const;
  /// Makes the commands of extents of the region and forgets no piece.
  void make_commands(std::vector<Extent>& extents, bool write,
                     std::vector<IoCommand>& commands) const;
  void add_pieces(std::size_t s, GroupId group, EntryReads& reads) const;
  void finish_reads(EntryReads& reads);
  void check_read(const EntryReads& reads);
  void read_moved(std::size_t s, const std::vector<EntryPiece>& old_pieces);
  /// What `timer` has run for so far is the appending of the step's entry.
  void end_step(LapTimer& timer);
  /// Reads late_reads_ and waits; the wait is no work.
  void read_late();
  void note_touched(std::size_t s, const std::vector<Extent>& writes);
  void cover(std::size_t s, const std::vector<Extent>& writes, BlockWrites& job);
  void make_writes(const std::vector<Extent>& writes, BlockWrites& job);
  void settle(const BlockWrites& job);
  void keep_partial_blocks(BlockWrites& job);
  void find_base(BlockWrites& job);
  void sweep();
  void locate_held();
  void find_index_reads();
  void write_prompt(const Entries& entries, LiveIo& io);
  void mark_written(const IoCommand& command);
  [[nodiscard]] bool is_written(std::uint64_t offset) const;

  const Options options_;
  LayerShape shape_;
  LayerPolicy policy_;
  DecodedRows& rows_;
  std::unique_ptr<HalfRows> own_keys_;  // where scores read the keys of all tokens
  ReadNow read_now_;
  std::int64_t heads_per_stream_ = 1;
  PlaceSpec place_;
  StepReads step_reads_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<Layout> layout_;
  std::vector<Stream> streams_;
  bool in_prompt_ = true;
  std::int64_t step_ = -1;
  Token newest_ = 0;

  EntryReads reads_;        // of the step
  EntryReads cache_reads_;  // of the next step
  EntryReads late_reads_;   // of one event
  std::vector<IoCommand> index_reads_;
  std::vector<Extent> step_extents_;  // read for entries that are requested, of the region
  LayoutTraffic traffic_;
  BlockWrites next_;           // of the step that computes
  BlockWrites current_;        // under way
  std::deque<Block> partial_;  // the latest blocks that were written in part: the next entry's too
  std::vector<bool> written_;  // by block of the region
  std::vector<std::byte> prompt_image_;
  LiveIo::Batch prompt_batch_;
  std::uint64_t generation_ = 0;
  std::int64_t checked_entries_ = 0;
  std::int64_t base_reads_ = 0;
  std::int64_t peak_write_bytes_ = 0;
  LayerPlan::Io extents_;
  LiveLayerWork work_;
};

/// UserError where live cannot run the system with entries on a target.
void check_live(const DecideSpec& decide, const PlaceSpec& place, const LayerShape& shape);

}  // namespace kvreplay
