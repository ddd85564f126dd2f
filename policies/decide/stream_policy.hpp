#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policies/decide/layer_policy.hpp"

namespace kvreplay {

/// One stream under one system: its parts, the groups that they share, and the log. A step happens
/// here. Every event, whichever part emits it, is passed on in one order: to the groups, scoring,
/// precision, and then the log.
class StreamPolicy final : public EventSink {
 public:
  StreamPolicy(const DecideSpec& spec, const StreamShape& shape, const LayerShape& layer,
               const PolicyOptions& options);

  // The calls and their order are those of LayerPolicy, for the stream's own entries and queries.
  // `layer`: the entries of all KV heads of the layer.
  void add_prompt(const Entries& entries, const QueryWindow& window, const Entries& layer);
  void select(const Entries& entries, QueryRows scored);
  /// To what select() chose. Fills one HeadAttention per query head of the stream. `exact`: full
  /// attention of the layer, or null.
  void attend(const Entries& entries, QueryRows queries, std::span<HeadAttention> attention,
              const ExactStep* exact);
  void add_token(const Entries& entries);

  void on_event(const GroupEvent& event) override;

  [[nodiscard]] const StreamShape& shape() const { return shape_; }
  [[nodiscard]] std::vector<EntryFormat> formats() const { return precision_->formats(); }
  [[nodiscard]] AttendedBound bound() const;
  [[nodiscard]] const Groups& groups() const { return groups_; }
  [[nodiscard]] const Precision& precision() const { return *precision_; }
  [[nodiscard]] const Scoring& scoring() const { return *scoring_; }
  [[nodiscard]] const StreamLog& log() const { return log_; }
  /// The groups that the latest select() chose: ascending, each once.
  [[nodiscard]] std::span<const GroupId> requested() const { return requested_; }
  [[nodiscard]] StreamLog finish() && {
    log_.out_of_range = precision_->out_of_range();
    return std::move(log_);
  }

 private:
  /// The tokens that a row's query heads attend to, ascending.
  void gather(const RowSelection& row, Token own, std::vector<Token>& tokens) const;
  /// The attention of query heads of one KV head, from `first_head` on, to the same `tokens`.
  void attend_together(std::int64_t first_head, QueryRows queries, const Entries& stored,
                       std::span<const Token> tokens, std::span<HeadAttention> heads);
  /// Fills picked_ and requested_ for the queries of one position.
  Scores choose(QueryRows queries, const Entries& entries);
  /// Entries of earlier tokens as the index sees them.
  [[nodiscard]] Entries seen(const Entries& entries) const {
    return index_stored_ && host_ == nullptr ? precision_->decoded(entries) : entries;
  }
  void log_window(const Entries& entries, const QueryWindow& window);
  /// Of the prompt's tokens from `first` on.
  void log_coarse_channels(const Entries& entries, Token first);
  void log_step(std::span<const HeadAttention> attention);
  void buffer(Token begin, Token end);
  /// Evicts what lies before `first`: the layer's sliding window has left it behind for good. No
  /// part selects, and no later stage holds or reads, what has been evicted.
  void expire(Token first);
  void notify_attention(std::int64_t query_head, Token position, std::span<const Token> tokens,
                        std::span<const float> weights);
  void notify_prompt_attention(const Entries& entries, const QueryWindow& window);

  StreamShape shape_;
  std::int64_t sliding_window_;
  Token visible_ = 0;  // earlier tokens have expired
  Token sink_tokens_;
  Token recent_tokens_;
  std::int64_t window_queries_;
  bool attend_buffered_;
  bool record_tokens_;
  bool index_stored_;
  EntryHost* host_;

  std::unique_ptr<Grouping> grouping_;
  std::unique_ptr<Scoring> scoring_;
  std::unique_ptr<Selection> selection_;
  std::unique_ptr<Precision> precision_;
  std::unique_ptr<Retention> retention_;
  Groups groups_;
  StreamLog log_;

  // Of the call in progress, for event listeners: as the index sees them, and as they were made.
  const Entries* entries_ = nullptr;
  const Entries* exact_ = nullptr;
  std::int64_t score_rows_ = 0;       // of the latest select()
  std::vector<RowSelection> picked_;  // by row, from the latest attend()
  std::vector<GroupId> requested_;    // the union of the picked groups, ascending

  // What the latest attend() gave out views of.
  std::vector<std::vector<Token>> tokens_;   // by row
  std::vector<std::vector<float>> weights_;  // by query heads that attend together: [heads, tokens]
  std::vector<float> outputs_;               // [query heads, head_dim]
};

}  // namespace kvreplay
