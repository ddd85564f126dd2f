#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/random.hpp"
#include "policies/decide/retention/retention.hpp"

namespace kvreplay {

/// Drives a retention part like a stream: every token joins one group (odd tokens) or stays in
/// memory (even ones). Attention goes to all remaining tokens, with weights that are random but
/// depend only on (position, query head, token).
class RetentionDriver final : public EventSink {
 public:
  RetentionDriver(const std::string& part, std::int64_t prompt_tokens, std::int64_t query_heads,
                  double layer_ratio = 1)
      : prompt_tokens_(prompt_tokens), query_heads_(query_heads) {
    StreamShape shape;
    shape.queries_per_kv_head = query_heads;
    shape.head_dim = 4;
    retention_ = PartConfig<Retention>::parse(ConfigNode::parse(part, "test.json"))
                     .make({shape, prompt_tokens, layer_ratio});
  }

  static float raw_weight(std::int64_t position, std::int64_t head, Token token) {
    const std::uint64_t key = (static_cast<std::uint64_t>(position) << 40) ^
                              (static_cast<std::uint64_t>(head) << 32) ^
                              static_cast<std::uint64_t>(token);
    // A few tokens get most of the attention for a long time.
    const std::uint64_t heavy = Random::derive(77, static_cast<std::uint64_t>(token)) % 16;
    const double noise = static_cast<double>(Random::derive(5, key) >> 11) * 0x1p-53;
    return static_cast<float>(noise + (heavy == 0 ? 3.0 : 0.01));
  }
  /// Weights of `tokens`, which add up to 1.
  static std::vector<float> weights(std::int64_t position, std::int64_t head,
                                    const std::vector<Token>& tokens) {
    std::vector<float> result;
    float sum = 0;
    for (const Token token : tokens) {
      result.push_back(raw_weight(position, head, token));
      sum += result.back();
    }
    for (float& weight : result) weight /= sum;
    return result;
  }

  /// The prompt, whose last `window` queries are known.
  void prompt(std::int64_t window) {
    std::vector<Token> odd;
    std::vector<Token> even;
    for (Token token = 0; token < prompt_tokens_; ++token)
      (token % 2 == 1 ? odd : even).push_back(token);
    groups_.on_event({EventKind::kCreated, 0, kNoGroup, odd});
    groups_.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, even});
    tell_prompt(window);
    retention_->after_prompt(groups_, *this);
  }
  void tell_prompt(std::int64_t window) {
    for (std::int64_t position = prompt_tokens_ - window; position < prompt_tokens_; ++position) {
      std::vector<Token> tokens;
      for (Token token = 0; token <= position; ++token) tokens.push_back(token);
      tell(position, tokens);
    }
  }
  void step() {
    const auto token = static_cast<Token>(prompt_tokens_ + steps_++);
    std::vector<Token> attended = live();
    attended.push_back(token);
    tell(token, attended);
    if (token % 2 == 1) {
      groups_.on_event({EventKind::kAppended, 0, kNoGroup, {&token, 1}});
    } else {
      groups_.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, {&token, 1}});
    }
    retention_->after_step(token, groups_, *this);
  }

  void on_event(const GroupEvent& event) override {
    if (event.kind == EventKind::kReencoded) {
      for (const Token token : event.tokens) {
        if (event.other == 1) quantised_.insert(token);
        if (event.other == 0) quantised_.erase(token);
      }
    } else {
      groups_.on_event(event);  // checks that the evicted tokens are where the event says
      for (const Token token : event.tokens) quantised_.erase(token);
    }
    ++events_;
  }

  /// The remaining tokens, ascending.
  [[nodiscard]] std::vector<Token> live() const {
    std::vector<Token> tokens;
    for (Token token = 0; token < prompt_tokens_ + steps_; ++token) {
      const Groups::Where where = groups_.where(token);
      if (where == Groups::Where::kGrouped || where == Groups::Where::kBuffered) {
        tokens.push_back(token);
      }
    }
    return tokens;
  }
  [[nodiscard]] const std::set<Token>& quantised() const { return quantised_; }
  [[nodiscard]] Retention& retention() { return *retention_; }
  [[nodiscard]] std::int64_t events() const { return events_; }

 private:
  void tell(std::int64_t position, const std::vector<Token>& tokens) {
    if (!retention_->needs_attention()) return;
    for (std::int64_t head = 0; head < query_heads_; ++head) {
      retention_->notify_attention(head, static_cast<Token>(position), tokens,
                                   weights(position, head, tokens));
    }
  }

  std::int64_t prompt_tokens_;
  std::int64_t query_heads_;
  std::int64_t steps_ = 0;
  std::int64_t events_ = 0;
  std::unique_ptr<Retention> retention_;
  Groups groups_;
  std::set<Token> quantised_;
};

}  // namespace kvreplay
