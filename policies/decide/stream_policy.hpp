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
  /// `scored` are the queries that select, `queries` the ones that attend. Fills one HeadAttention
  /// per query head of the stream.
  void attend(const Entries& entries, QueryRows queries, QueryRows scored,
              std::span<HeadAttention> attention);
  void add_token(const Entries& entries);

  void on_event(const GroupEvent& event) override;

  [[nodiscard]] const StreamShape& shape() const { return shape_; }
  [[nodiscard]] std::vector<EntryFormat> formats() const { return precision_->formats(); }
  [[nodiscard]] StreamLog finish() && {
    log_.out_of_range = precision_->out_of_range();
    return std::move(log_);
  }

 private:
  /// The tokens that a row's query heads attend to, ascending, without those hidden by the layer's
  /// sliding window.
  void gather(const RowSelection& row, Token own, std::vector<Token>& tokens) const;
  /// Fills picked_ and requested_ for the queries of one position.
  Scores choose(QueryRows queries, const Entries& entries);
  void log_window(const Entries& entries, const QueryWindow& window);
  void log_step(const Scores& scores, std::span<const HeadAttention> attention);
  void buffer(Token begin, Token end);
  void notify_attention(std::int64_t query_head, Token position, std::span<const Token> tokens,
                        std::span<const float> weights);
  void notify_prompt_attention(const Entries& entries, const QueryWindow& window);

  StreamShape shape_;
  std::int64_t sliding_window_;
  Token sink_tokens_;
  Token recent_tokens_;
  std::int64_t window_queries_;
  bool attend_buffered_;
  bool record_tokens_;

  std::unique_ptr<Grouping> grouping_;
  std::unique_ptr<Scoring> scoring_;
  std::unique_ptr<Selection> selection_;
  std::unique_ptr<Precision> precision_;
  std::unique_ptr<Retention> retention_;
  Groups groups_;
  StreamLog log_;

  const Entries* entries_ = nullptr;  // of the call in progress, for event listeners
  std::vector<RowSelection> picked_;  // by row, from the latest attend()
  std::vector<GroupId> requested_;    // the union of the picked groups, ascending
};

}  // namespace kvreplay
