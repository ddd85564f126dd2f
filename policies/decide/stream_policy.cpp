#include "policies/decide/stream_policy.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <stdexcept>

#include "policies/decide/prompt_attention.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {

StreamPolicy::StreamPolicy(const DecideSpec& spec, const StreamShape& shape,
                           const LayerShape& layer, const PolicyOptions& options)
    : shape_(shape),
      sliding_window_(layer.sliding_window),
      sink_tokens_(static_cast<Token>(spec.stream.integer("sink_tokens"))),
      recent_tokens_(static_cast<Token>(spec.stream.integer("recent_tokens"))),
      window_queries_(spec.stream.integer("window_queries")),
      attend_buffered_(spec.stream.flag("attend_buffered")),
      record_tokens_(options.record_tokens),
      grouping_(spec.grouping.make({shape, options.seed})),
      scoring_(spec.scoring.make({shape, options.adapters, options.seed, sink_tokens_})),
      selection_(spec.selection.make({shape, sink_tokens_})),
      precision_(spec.precision.make({shape, layer.max_tokens, options.features, layer.rope})),
      retention_(spec.retention.make({shape, layer.prompt_tokens, options.layer_ratio})) {
  if (retention_->reencodes() && !precision_->accepts_reencoding()) {
    throw UserError(spec.precision.arguments().place("part"), spec.precision.name(),
                    "a part that can re-encode entries (tri_state), as retention " +
                        spec.retention.name() + " requires");
  }
  log_.first_kv_head = shape.first_kv_head;
  log_.kv_heads = shape.kv_heads;
  log_.query_heads = shape.query_heads();
  if (record_tokens_) log_.attended_begin.push_back(0);
}

void StreamPolicy::on_event(const GroupEvent& event) {
  groups_.on_event(event);
  scoring_->notify_event(event, groups_, *entries_);
  precision_->notify_event(event, groups_, *entries_);
  log_.add(event);
}

void StreamPolicy::add_prompt(const Entries& entries, const QueryWindow& window,
                              const Entries& layer) {
  entries_ = &entries;
  const auto end = static_cast<Token>(entries.keys.tokens);
  const Token first = std::min(sink_tokens_, end);
  const Token recent = std::max(first, end - recent_tokens_);
  scoring_->notify_prompt(entries, window);
  precision_->add_tokens(entries, 0, end, *this);
  buffer(0, first);
  grouping_->add_prompt(entries, first, recent, groups_, *this);
  buffer(recent, end);
  precision_->after_prompt(layer, groups_, *this);
  notify_prompt_attention(entries, window);
  retention_->after_prompt(groups_, *this);
  log_window(entries, window);
  log_.end_segment();
}

void StreamPolicy::attend(const Entries& entries, QueryRows queries, QueryRows scored,
                          std::span<HeadAttention> attention) {
  const auto own = static_cast<Token>(entries.keys.tokens - 1);
  const Scores scores = choose(scored, entries.first_tokens(own));

  const Entries stored = precision_->decoded(entries);
  for (std::int64_t head = 0; head < shape_.query_heads(); ++head) {
    HeadAttention& result = attention[static_cast<std::size_t>(head)];
    if (head > 0 && scores.rows == 1) {
      result.tokens = attention[0].tokens;
    } else {
      gather(picked_[static_cast<std::size_t>(head)], own, result.tokens);
    }
    result.weights.resize(result.tokens.size());
    result.output.resize(static_cast<std::size_t>(shape_.head_dim));
    const std::int64_t kv = shape_.kv_head_of(head);
    kernels::attend(queries.data() + head * shape_.head_dim, stored.keys.head(kv),
                    stored.values.head(kv), result.tokens, shape_.head_dim, shape_.softmax_scale,
                    result.weights.data(), result.output.data());
    notify_attention(head, own, result.tokens, result.weights);
  }
  log_step(scores, attention);
}

void StreamPolicy::add_token(const Entries& entries) {
  entries_ = &entries;
  const auto token = static_cast<Token>(entries.keys.tokens - 1);
  precision_->add_tokens(entries, token, token + 1, *this);
  const Token leaving = token - recent_tokens_;
  if (leaving < token || token < sink_tokens_) buffer(token, token + 1);
  if (leaving >= sink_tokens_ && groups_.where(leaving) != Groups::Where::kEvicted) {
    grouping_->add_token(entries, leaving, requested_, groups_, *this);
  }
  retention_->after_step(token, groups_, *this);
  log_.end_segment();
}

void StreamPolicy::gather(const RowSelection& row, Token own, std::vector<Token>& tokens) const {
  const std::vector<Token>& buffered = groups_.buffered();
  const auto buffered_end = attend_buffered_
                                ? buffered.end()
                                : std::lower_bound(buffered.begin(), buffered.end(), sink_tokens_);
  tokens.assign(buffered.begin(), buffered_end);
  for (const GroupId group : row.groups) {
    const std::vector<Token>& members = groups_.members(group);
    const bool last = group == row.groups.back();
    const auto end = last ? members.begin() + row.last_tokens : members.end();
    tokens.insert(tokens.end(), members.begin(), end);
  }
  if (!std::is_sorted(tokens.begin(), tokens.end())) std::sort(tokens.begin(), tokens.end());
  tokens.push_back(own);
  if (sliding_window_ > 0) {
    const auto first = static_cast<Token>(own + 1 - sliding_window_);
    tokens.erase(tokens.begin(), std::lower_bound(tokens.begin(), tokens.end(), first));
  }
}

Scores StreamPolicy::choose(QueryRows queries, const Entries& entries) {
  const Scores scores = scoring_->score(queries, groups_, entries);
  assert(scores.groups == groups_.count());
  assert(scores.rows == 1 || scores.rows == shape_.query_heads());
  picked_.resize(static_cast<std::size_t>(scores.rows));
  selection_->select(scores, groups_, picked_);
  requested_.clear();
  for (const RowSelection& row : picked_) {
    requested_.insert(requested_.end(), row.groups.begin(), row.groups.end());
  }
  std::sort(requested_.begin(), requested_.end());
  requested_.erase(std::unique(requested_.begin(), requested_.end()), requested_.end());
  return scores;
}

void StreamPolicy::log_window(const Entries& entries, const QueryWindow& window) {
  const HalfTensor& recorded = window.queries;
  std::vector<float> queries(static_cast<std::size_t>(recorded.heads * recorded.dim));
  const std::int64_t first = std::max<std::int64_t>(0, recorded.tokens - window_queries_);
  for (std::int64_t i = first; i < recorded.tokens; ++i) {
    for (std::int64_t head = 0; head < recorded.heads; ++head) {
      kernels::to_float(recorded.row(head, i), queries.data() + head * recorded.dim, recorded.dim);
    }
    choose(queries, entries);
    log_.window_requested.insert(log_.window_requested.end(), requested_.begin(), requested_.end());
    log_.window_begin.push_back(std::ssize(log_.window_requested));
  }
}

void StreamPolicy::log_step(const Scores& scores, std::span<const HeadAttention> attention) {
  for (const RowSelection& row : picked_) {
    log_.picked.insert(log_.picked.end(), row.groups.begin(), row.groups.end());
    log_.pick_begin.push_back(std::ssize(log_.picked));
    log_.last_tokens.push_back(static_cast<std::int32_t>(row.last_tokens));
  }
  log_.requested.insert(log_.requested.end(), requested_.begin(), requested_.end());
  log_.requested_begin.push_back(std::ssize(log_.requested));

  assert(log_.rows == 0 || log_.rows == scores.rows);
  log_.rows = scores.rows;
  for (const HeadAttention& head : attention) {
    log_.attended_count.push_back(static_cast<std::int32_t>(head.tokens.size()));
    if (!record_tokens_) continue;
    log_.attended.insert(log_.attended.end(), head.tokens.begin(), head.tokens.end());
    log_.attended_begin.push_back(std::ssize(log_.attended));
  }
  const ScoreCost cost = scoring_->cost();
  log_.buffered_tokens.push_back(static_cast<std::int32_t>(groups_.buffered().size()));
  log_.held_bytes.push_back(cost.held_bytes + precision_->held_bytes());
  log_.score_bytes.push_back(cost.read_bytes);
  log_.score_flops.push_back(cost.flops);
}

void StreamPolicy::buffer(Token begin, Token end) {
  if (begin >= end) return;
  std::vector<Token> tokens(static_cast<std::size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  on_event({EventKind::kBuffered, kNoGroup, kNoGroup, tokens});
}

void StreamPolicy::notify_attention(std::int64_t query_head, Token position,
                                    std::span<const Token> tokens, std::span<const float> weights) {
  if (scoring_->needs_attention()) {
    scoring_->notify_attention(query_head, position, tokens, weights);
  }
  if (retention_->needs_attention()) {
    retention_->notify_attention(query_head, position, tokens, weights);
  }
}

void StreamPolicy::notify_prompt_attention(const Entries& entries, const QueryWindow& window) {
  if (!scoring_->needs_attention() && !retention_->needs_attention()) return;
  for_prompt_attention(shape_, sliding_window_, entries, window,
                       [&](std::int64_t query_head, Token position, std::span<const Token> tokens,
                           std::span<const float> weights) {
                         notify_attention(query_head, position, tokens, weights);
                       });
}

}  // namespace kvreplay
