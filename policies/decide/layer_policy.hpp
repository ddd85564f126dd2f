#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "policies/decide/grouping/grouping.hpp"
#include "policies/decide/log/access_log.hpp"
#include "policies/decide/precision/precision.hpp"
#include "policies/decide/retention/retention.hpp"
#include "policies/decide/scoring/scoring.hpp"
#include "policies/decide/selection/selection.hpp"

namespace kvreplay {

/// The stage-1 half of a system: its parts, how a stream is cut, and what it always keeps.
struct DecideSpec {
  static constexpr Stage kStage = Stage::kDecide;
  /// Parameters of the "stream" member of a system's JSON.
  [[nodiscard]] static std::span<const Parameter> stream_parameters();
  /// From the members of a system's JSON object that this stage reads; it ignores the others.
  [[nodiscard]] static DecideSpec parse(const ConfigNode& system);

  /// How many of the model's first layers attend in full, in memory: decided here, once. Policies
  /// ask, and logs and plans hand it on.
  [[nodiscard]] std::int64_t full_attention_layers() const {
    return stream.integer("dense_layers");
  }

  /// Whether decisions depend on the model that a recording stands for (kOfModelColumns).
  [[nodiscard]] bool depends_on_model() const;

  Arguments stream;
  PartConfig<Grouping> grouping;
  PartConfig<Scoring> scoring;
  PartConfig<Selection> selection;
  PartConfig<Precision> precision;
  PartConfig<Retention> retention;

  /// Calls visit(chosen) for every part of `spec`, a DecideSpec. This list of the stage's roles is
  /// the only one: parsing, content hashes, settings and pages follow from it.
  template <typename Spec, typename Visit>
  static void for_parts(Spec& spec, Visit&& visit) {
    for_parts_of<kStage>(visit, spec.grouping, spec.scoring, spec.selection, spec.precision,
                         spec.retention);
  }

  /// Resolved parts and arguments as canonical JSON: what a content hash takes.
  [[nodiscard]] std::string resolved() const;
};

struct LayerShape {
  std::int64_t layer = 0;
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  float softmax_scale = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t max_tokens = 0;
  std::int64_t sliding_window = 0;        ///< attention sees the last so many tokens; 0 = all
  std::optional<RotaryEmbedding> rope{};  ///< none where it is not known
  /// Of the model that the layer stands for by projection; 0 = this one's.
  HeadShape model_heads{};

  /// Of `heads` KV heads from `first_kv_head` on, jointly.
  [[nodiscard]] StreamShape stream(std::int64_t first_kv_head, std::int64_t heads) const {
    return {.layer = layer,
            .first_kv_head = first_kv_head,
            .kv_heads = heads,
            .queries_per_kv_head = query_heads / kv_heads,
            .head_dim = head_dim,
            .softmax_scale = softmax_scale,
            .model_heads = model_heads.kv_heads > 0 ? model_heads : HeadShape{kv_heads, head_dim}};
  }
};

/// The tokens that one query head attends to at a step, and the result: views of what the policy
/// keeps until its next step.
struct HeadAttention {
  std::span<const Token> tokens;   ///< ascending; the last one is the step's own token
  std::span<const float> weights;  ///< softmax over `tokens`
  std::span<const float> output;   ///< [head_dim]
};

/// Where a stream's entries are when most of them are not in memory. The policy is then given
/// Entries that show those which are, as they come back from storage, and nothing else (but for the
/// prompt and a step's own token, which are exact until they are stored).
class EntryHost {
 public:
  /// Follows an event before any part does: what the parts may read of it must be in the Entries.
  virtual void on_event(std::int64_t first_kv_head, const GroupEvent& event) = 0;
  /// The step's token has its format: the Entries must show it as stored from now on.
  virtual void on_stored(std::int64_t first_kv_head, Token token) = 0;

 protected:
  ~EntryHost() = default;
};

/// What a policy takes beside its system and its layer. What is pointed to outlives the policy.
struct PolicyOptions {
  const AdapterSource* adapters = nullptr;       ///< Scoring::Context
  const TokenFeatureSource* features = nullptr;  ///< Precision::Context
  std::uint64_t seed = 0;
  bool record_tokens = false;  ///< StreamLog::attended
  double layer_ratio = 1;      ///< Retention::Context
  EntryHost* host = nullptr;   ///< of entries that leave memory; the index sees them as stored
  std::shared_ptr<void>* of_layer = nullptr;  ///< Precision::Context; LayerPolicy fills it in
};

class ExactStep;
class StreamPolicy;

/// One layer under one system, driven step by step: by a recording in replay, by a running model in
/// the closed loop. All entries are given as [kv_heads, tokens so far, head_dim]. The index is
/// built from the entries as they arrive; attention reads them as they are stored.
///
///   add_prompt(entries of the prompt)
///   for each step, at position n = tokens so far:
///     attend(entries up to and with n, queries of n)    selects among earlier tokens, attends
///     add_token(entries up to and with n)               the index takes token n
class LayerPolicy {
 public:
  LayerPolicy(const DecideSpec& spec, const LayerShape& shape, const PolicyOptions& options);
  ~LayerPolicy();
  LayerPolicy(LayerPolicy&&) noexcept;

  void add_prompt(const Entries& entries, const QueryWindow& window);
  /// queries and look_ahead: [query_heads, head_dim]; look_ahead is empty where there is none (then
  /// a system that requires it is a UserError). `exact`: the step's full attention, where it is
  /// known; a stream that attends to all tokens as they were made takes it from there, with the
  /// same bits. Returns one HeadAttention per query head, valid until the next call of attend() and
  /// as long as `exact` stays.
  [[nodiscard]] std::span<const HeadAttention> attend(const Entries& entries, QueryRows queries,
                                                      QueryRows look_ahead,
                                                      const ExactStep* exact = nullptr);
  void add_token(const Entries& entries);

  // attend() in two parts, for a machine that fetches between them what was selected.

  /// `entries`: of the earlier tokens. `scored`: the queries that select.
  void select(const Entries& entries, QueryRows scored);
  /// `entries`: up to and with the step's own token.
  [[nodiscard]] std::span<const HeadAttention> attend_selected(const Entries& entries,
                                                               QueryRows queries,
                                                               const ExactStep* exact = nullptr);

  [[nodiscard]] bool looks_ahead() const { return look_ahead_; }
  [[nodiscard]] bool full_attention() const { return full_attention_; }
  [[nodiscard]] std::span<const std::unique_ptr<StreamPolicy>> streams() const { return streams_; }
  [[nodiscard]] std::vector<EntryFormat> formats() const;
  [[nodiscard]] AttendedBound bound() const;
  /// The complete log. Ends the policy.
  [[nodiscard]] LayerLog finish() &&;

 private:
  LayerShape shape_;
  bool full_attention_;
  bool look_ahead_;
  std::vector<std::unique_ptr<StreamPolicy>> streams_;
  std::vector<HeadAttention> attention_;
};

}  // namespace kvreplay
