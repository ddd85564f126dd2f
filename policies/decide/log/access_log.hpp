#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "policies/decide/log/entry_format.hpp"
#include "policies/decide/log/groups.hpp"
#include "policies/decide/log/number_sets.hpp"
#include "policies/decide/log/prompt_work.hpp"

namespace kvreplay {

/// Everything that one stream did (docs/access-log.md). Ragged arrays are flat, with an array of
/// begin indices: the elements of item i are [begin[i], begin[i + 1]).
struct StreamLog {
  std::int64_t first_kv_head = 0;
  std::int64_t kv_heads = 1;
  std::int64_t query_heads = 1;

  // Group events in order. Segment 0 is the prompt; segment s + 1 follows step s.
  std::vector<std::int64_t> event_begin{0};  ///< [steps + 2]
  std::vector<EventKind> event_kind;
  std::vector<GroupId> event_group;
  std::vector<std::int32_t> event_other;
  std::vector<std::int64_t> event_token_begin{0};  ///< [events + 1]
  std::vector<Token> event_tokens;

  // The groups that each of the prompt's last queries would have requested from the groups as they
  // are at the prompt's end; the last position is the prompt's last token. Used for co-retrieval
  // counts; empty unless the system sets window_queries.
  std::vector<std::int64_t> window_begin{0};  ///< [positions + 1]
  std::vector<GroupId> window_requested;

  NumberSets requested;  ///< [steps], the groups that each step requested: the union over rows

  // What each row picked: `rows` rows per step, one for each query head or one for all. All members
  // of each group are attended to, except for the one picked last, which may be trimmed.
  std::int64_t rows = 0;
  NumberSets picked;                      ///< [steps * rows], groups
  std::vector<GroupId> last_picked;       ///< [steps * rows], kNoGroup where nothing was picked
  std::vector<std::int32_t> last_tokens;  ///< [steps * rows], members of it

  // The number of tokens that each query head attended to, itself included. The tokens are stored
  // only where they were asked for.
  std::vector<std::int32_t> attended_count;  ///< [steps * query_heads]
  NumberSets attended;                       ///< [steps * query_heads] or empty

  /// [steps], tokens in memory outside groups, before the step.
  std::vector<std::int32_t> buffered_tokens;
  /// [steps], bytes in DRAM beside the entries: representatives, factors of low-rank keys.
  std::vector<std::int64_t> held_bytes;
  // Of these: what a longer sequence has as well (codebooks), and what grows with the prompt's
  // tokens, in groups or not (factors of low-rank keys). The rest grows with the tokens in groups.
  std::int64_t held_fixed_bytes = 0;
  std::int64_t held_prompt_bytes = 0;
  std::vector<std::int64_t> score_bytes;  ///< [steps], read from DRAM to score
  std::vector<std::int64_t> score_flops;  ///< [steps]

  /// Elements that the format's range does not suit: Precision::out_of_range().
  std::int64_t out_of_range = 0;
  /// Channels of keys and of values that the format's steps are too coarse for: over the prompt,
  /// what is stored is no closer than the channel's mean.
  std::int64_t coarse_channels = 0;
  PromptWork prompt_work;  ///< of all parts

  [[nodiscard]] std::int64_t steps() const { return requested.size(); }
  void add(const GroupEvent& event);
  void end_segment() { event_begin.push_back(std::ssize(event_kind)); }
  [[nodiscard]] GroupEvent event(std::int64_t index) const;
  /// Calls visit(const GroupEvent&) for each event of a segment.
  template <typename Visit>
  void for_events(std::int64_t segment, Visit&& visit) const {
    const auto at = static_cast<std::size_t>(segment);
    for (std::int64_t e = event_begin[at]; e < event_begin[at + 1]; ++e) visit(event(e));
  }
};

/// Fidelity to full attention, [steps * query_heads] each; the query heads of the whole layer vary
/// fastest (docs/metrics.md).
struct Quality {
  std::vector<float> recall;
  std::vector<float> attention_mass;
  /// For the same number of tokens, chosen by the true logits.
  std::vector<float> best_attention_mass;
  std::vector<float> output_error;
  /// [steps]: of all heads together, behind the output projection, against the residual stream.
  /// Empty where the trace lacks what it is computed from.
  std::vector<float> residual_error;
};

struct LayerLog {
  std::int64_t layer = 0;  ///< the model's layer number
  /// Full attention: all tokens are kBuffered, and no group exists.
  bool full_attention = false;
  /// A query saw the latest so many tokens; 0 = all. What it could not see had been evicted.
  std::int64_t sliding_window = 0;
  std::vector<StreamLog> streams;
  Quality quality;
};

/// A turn of a conversation, in steps: those from `begin` on are prefilled at once, and those from
/// `generated_begin` on are decoded. The first turn prefills the log's prompt, and no steps.
struct TurnSteps {
  std::int64_t begin = 0;
  std::int64_t generated_begin = 0;
  std::int64_t end = 0;
  friend bool operator==(const TurnSteps&, const TurnSteps&) = default;
};

/// How the number of tokens that a step attends to, in layers that select, depends on the
/// sequence's length. With none of the members it attends to all.
struct AttendedBound {
  bool share_of_context = false;  ///< it is a share of the length
  bool share_of_prompt = false;   ///< of the prompt's, and not of the tokens so far
  std::int64_t tokens = 0;        ///< so many at most; 0 = no such number
  bool covers_all = false;  ///< `tokens` counts those in memory outside groups and the step's own
  friend bool operator==(const AttendedBound&, const AttendedBound&) = default;
};

/// What stage 1 decided for one system on one trace: a value that depends on nothing else.
struct AccessLog {
  std::string trace_hash;
  std::string system;         ///< name
  std::string decide_config;  ///< resolved stage-1 composition, as JSON text
  /// So many of the model's first layers use full attention, recorded or not; `decide_config` says
  /// it too.
  std::int64_t full_attention_layers = 0;
  AttendedBound bound{};
  std::int64_t query_heads = 0;  ///< as recorded
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t steps = 0;
  std::vector<EntryFormat> formats;
  std::vector<LayerLog> layers;
  /// In order, each with a step that is decoded; empty where the trace has no segments.
  std::vector<TurnSteps> turns{};
};

/// The file appears whole or not at all; the same log gives the same bytes.
void write_access_log(const AccessLog& log, const std::string& file);
[[nodiscard]] AccessLog read_access_log(const std::string& file);

}  // namespace kvreplay
