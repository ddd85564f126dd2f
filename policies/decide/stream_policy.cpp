#include "policies/decide/stream_policy.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "policies/decide/prompt_attention.hpp"
#include "policies/decide/quality.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

/// The channels [dim] of rows [tokens, dim] of which what is stored is no closer than their mean.
std::int64_t count_coarse(const Half* exact, const Half* stored, std::int64_t tokens,
                          std::int64_t dim) {
  struct Sums {
    double sum = 0;
    double squares = 0;
    double error = 0;
  };
  std::vector<Sums> of_channel(static_cast<std::size_t>(dim));
  std::vector<float> made(of_channel.size());
  std::vector<float> decoded(of_channel.size());
  for (std::int64_t token = 0; token < tokens; ++token) {
    kernels::to_float(exact + token * dim, made.data(), dim);
    kernels::to_float(stored + token * dim, decoded.data(), dim);
    for (std::size_t channel = 0; channel < of_channel.size(); ++channel) {
      Sums& sums = of_channel[channel];
      const auto value = static_cast<double>(made[channel]);
      const double off = static_cast<double>(decoded[channel]) - value;
      sums.sum += value;
      sums.squares += value * value;
      sums.error += off * off;
    }
  }
  // Where a step is far wider than the spread, all values become one, and the two are equal but
  // for rounding.
  constexpr double kRounding = 0.999;
  return std::count_if(of_channel.begin(), of_channel.end(), [&](const Sums& sums) {
    const double variance = sums.squares - sums.sum * sums.sum / static_cast<double>(tokens);
    return sums.error > 0 && sums.error >= kRounding * variance;
  });
}

/// The first token of the prompt that any decode step sees.
Token prompt_visible(const LayerShape& layer) {
  return first_visible(layer.prompt_tokens, layer.sliding_window);
}

}  // namespace

StreamPolicy::StreamPolicy(const DecideSpec& spec, const StreamShape& shape,
                           const LayerShape& layer, const PolicyOptions& options)
    : shape_(shape),
      sliding_window_(layer.sliding_window),
      sink_tokens_(static_cast<Token>(spec.stream.integer("sink_tokens"))),
      recent_tokens_(static_cast<Token>(spec.stream.integer("recent_tokens"))),
      window_queries_(spec.stream.integer("window_queries")),
      attend_buffered_(spec.stream.flag("attend_buffered")),
      record_tokens_(options.record_tokens),
      index_stored_(spec.stream.text("index") == "stored"),
      host_(options.host),
      grouping_(spec.grouping.make({shape, options.seed})),
      scoring_(
          spec.scoring.make({shape, options.adapters, options.seed,
                             std::max(sink_tokens_, prompt_visible(layer)), layer.sliding_window})),
      selection_(
          spec.selection.make({shape, std::max<Token>(0, sink_tokens_ - prompt_visible(layer))})),
      precision_(
          spec.precision.make({shape, layer.max_tokens, options.features, layer.rope,
                               layer.sliding_window, options.host != nullptr, options.of_layer})),
      retention_(spec.retention.make({shape, layer.prompt_tokens, options.layer_ratio})) {
  if (retention_->reencodes() && !precision_->accepts_reencoding()) {
    throw UserError(spec.precision.arguments().place("part"), spec.precision.name(),
                    "a part that can re-encode entries (tri_state), as retention " +
                        spec.retention.name() + " requires");
  }
  log_.first_kv_head = shape.first_kv_head;
  log_.kv_heads = shape.kv_heads;
  log_.query_heads = shape.query_heads();
}

AttendedBound StreamPolicy::bound() const {
  AttendedBound bound{.share_of_context = selection_->selects_share() || retention_->keeps_share(),
                      .share_of_prompt = retention_->keeps_share(),
                      .tokens = selection_->most_tokens(),
                      .covers_all = selection_->most_covers_all()};
  // What is kept is counted without the step's own.
  if (retention_->most_tokens() > 0) {
    bound.tokens = retention_->most_tokens() + 1;
    bound.covers_all = true;
  }
  return bound;
}

void StreamPolicy::on_event(const GroupEvent& event) {
  groups_.on_event(event);
  if (host_ != nullptr) host_->on_event(shape_.first_kv_head, event);
  scoring_->notify_event(event, groups_, *entries_);
  precision_->notify_event(event, groups_, *exact_);
  log_.add(event);
}

void StreamPolicy::add_prompt(const Entries& entries, const QueryWindow& window,
                              const Entries& layer) {
  entries_ = &entries;
  exact_ = &entries;
  const auto end = static_cast<Token>(entries.keys.tokens);
  const Token visible = first_visible(end, sliding_window_);
  const Token first = std::max(visible, std::min(sink_tokens_, end));
  const Token recent = std::max(first, end - recent_tokens_);
  scoring_->notify_prompt(entries, window);
  precision_->add_tokens(entries, 0, end, *this);
  expire(visible);
  buffer(visible, first);
  grouping_->add_prompt(entries, first, recent, groups_, *this);
  buffer(recent, end);
  precision_->after_prompt(layer, groups_, *this);
  notify_prompt_attention(entries, window);
  retention_->after_prompt(groups_, *this);
  const std::int64_t tokens = end - visible;
  log_.prompt_work += grouping_->prompt_work();
  log_.prompt_work += scoring_->prompt_work(tokens);
  log_.prompt_work += precision_->prompt_work(tokens);
  log_.prompt_work += retention_->prompt_work(tokens);
  log_window(entries, window);
  log_coarse_channels(entries, visible);
  log_.end_segment();
}

void StreamPolicy::select(const Entries& entries, QueryRows scored) {
  score_rows_ = choose(scored, seen(entries)).rows;
}

void StreamPolicy::attend(const Entries& entries, QueryRows queries,
                          std::span<HeadAttention> attention, const ExactStep* exact) {
  const auto own = static_cast<Token>(entries.keys.tokens - 1);
  const Entries stored = host_ != nullptr ? entries : precision_->decoded(entries);
  const bool as_made = host_ == nullptr && stored.keys.data == entries.keys.data &&
                       stored.values.data == entries.values.data;
  // Query heads that share a row share their tokens: those of a KV head attend together.
  const std::int64_t together = score_rows_ == 1 ? shape_.queries_per_kv_head : 1;
  tokens_.resize(picked_.size());
  weights_.resize(static_cast<std::size_t>(shape_.query_heads() / together));
  outputs_.resize(static_cast<std::size_t>(shape_.query_heads() * shape_.head_dim));
  for (std::size_t row = 0; row < tokens_.size(); ++row) gather(picked_[row], own, tokens_[row]);
  for (std::int64_t head = 0; head < shape_.query_heads(); head += together) {
    const auto heads =
        attention.subspan(static_cast<std::size_t>(head), static_cast<std::size_t>(together));
    const std::vector<Token>& tokens =
        tokens_[score_rows_ == 1 ? 0 : static_cast<std::size_t>(head)];
    if (exact != nullptr && as_made && std::ssize(tokens) == exact->token_count()) {
      for (std::int64_t h = 0; h < together; ++h) {
        const std::int64_t of_layer = shape_.first_kv_head * shape_.queries_per_kv_head + head + h;
        heads[static_cast<std::size_t>(h)] = {tokens, exact->probabilities(of_layer),
                                              exact->output(of_layer)};
      }
    } else {
      attend_together(head, queries, stored, tokens, heads);
    }
    for (std::int64_t h = head; h < head + together; ++h) {
      const HeadAttention& result = attention[static_cast<std::size_t>(h)];
      notify_attention(h, own, result.tokens, result.weights);
    }
  }
  log_step(attention);
}

void StreamPolicy::attend_together(std::int64_t first_head, QueryRows queries,
                                   const Entries& stored, std::span<const Token> tokens,
                                   std::span<HeadAttention> heads) {
  const auto dim = static_cast<std::size_t>(shape_.head_dim);
  std::vector<float>& weights = weights_[static_cast<std::size_t>(first_head) / heads.size()];
  weights.resize(heads.size() * tokens.size());
  const std::span<float> outputs =
      std::span(outputs_).subspan(static_cast<std::size_t>(first_head) * dim, heads.size() * dim);
  const std::int64_t kv = shape_.kv_head_of(first_head);
  kernels::attend(queries.data() + first_head * shape_.head_dim, std::ssize(heads),
                  stored.keys.head(kv), stored.values.head(kv), tokens, shape_.head_dim,
                  shape_.softmax_scale, weights.data(), outputs.data());
  for (std::size_t h = 0; h < heads.size(); ++h) {
    heads[h] = {tokens, std::span(weights).subspan(h * tokens.size(), tokens.size()),
                outputs.subspan(h * dim, dim)};
  }
}

void StreamPolicy::add_token(const Entries& entries) {
  entries_ = &entries;
  exact_ = &entries;
  const auto token = static_cast<Token>(entries.keys.tokens - 1);
  precision_->add_tokens(entries, token, token + 1, *this);
  expire(first_visible(token + 1, sliding_window_));
  if (host_ != nullptr) host_->on_stored(shape_.first_kv_head, token);
  const Entries index = seen(entries);
  entries_ = &index;
  const Token leaving = token - recent_tokens_;
  if ((leaving < token || token < sink_tokens_) && token >= visible_) buffer(token, token + 1);
  if (leaving >= sink_tokens_ && groups_.where(leaving) != Groups::Where::kEvicted) {
    grouping_->add_token(index, leaving, requested_, groups_, *this);
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
  assert(tokens.front() >= first_visible(own, sliding_window_));
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

void StreamPolicy::log_coarse_channels(const Entries& entries, Token first) {
  if (host_ != nullptr || !precision_->rounds_channels()) return;
  const Entries stored = precision_->decoded(entries);
  const std::int64_t tokens = entries.keys.tokens - first;
  for (const auto& [exact, decoded] :
       {std::pair{&entries.keys, &stored.keys}, {&entries.values, &stored.values}}) {
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      log_.coarse_channels +=
          count_coarse(exact->row(head, first), decoded->row(head, first), tokens, shape_.head_dim);
    }
  }
}

void StreamPolicy::log_step(std::span<const HeadAttention> attention) {
  std::vector<GroupId> ascending;
  for (const RowSelection& row : picked_) {
    ascending = row.groups;
    std::sort(ascending.begin(), ascending.end());
    log_.picked.add(ascending);
    log_.last_picked.push_back(row.groups.empty() ? kNoGroup : row.groups.back());
    log_.last_tokens.push_back(static_cast<std::int32_t>(row.last_tokens));
  }
  log_.requested.add(requested_);

  assert(log_.rows == 0 || log_.rows == score_rows_);
  log_.rows = score_rows_;
  for (const HeadAttention& head : attention) {
    log_.attended_count.push_back(static_cast<std::int32_t>(head.tokens.size()));
    if (record_tokens_) log_.attended.add(head.tokens);
  }
  const ScoreCost cost = scoring_->cost();
  log_.buffered_tokens.push_back(static_cast<std::int32_t>(groups_.buffered().size()));
  log_.held_bytes.push_back(cost.held_bytes + precision_->held_bytes());
  log_.held_prompt_bytes = precision_->held_prompt_bytes();
  log_.held_fixed_bytes =
      cost.fixed_bytes + precision_->held_bytes() - precision_->held_prompt_bytes();
  log_.score_bytes.push_back(cost.read_bytes);
  log_.score_flops.push_back(cost.flops);
}

void StreamPolicy::buffer(Token begin, Token end) {
  if (begin >= end) return;
  std::vector<Token> tokens(static_cast<std::size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  on_event({EventKind::kBuffered, kNoGroup, kNoGroup, tokens});
}

void StreamPolicy::expire(Token first) {
  // A token that was never placed leaves by way of memory, as every token does.
  Token unseen = first;
  while (unseen > visible_ && groups_.where(unseen - 1) == Groups::Where::kUnseen) --unseen;
  buffer(unseen, first);
  std::vector<Token> hidden;
  for (; visible_ < first; ++visible_) {
    if (groups_.where(visible_) != Groups::Where::kEvicted) hidden.push_back(visible_);
  }
  evict(hidden, groups_, *this);
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
