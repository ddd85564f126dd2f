#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "policies/groups.hpp"
#include "sim/base/registry.hpp"

namespace kvreplay {

/// Role: what leaves for good. It evicts tokens from their groups or from memory.
class Retention {
 public:
  static constexpr std::string_view kRole = "retention";
  struct Context {
    StreamShape shape;
    std::int64_t prompt_tokens = 0;
  };

  virtual ~Retention() = default;

  /// What a query head's attention gave: weights of `tokens` (ascending), for the prompt's last
  /// queries before after_prompt and once a step before after_step.
  virtual void on_attention(std::int64_t /*query_head*/, Token /*position*/,
                            std::span<const Token> /*tokens*/, std::span<const float> /*weights*/) {
  }
  /// Once the prompt's tokens are placed, and after each step's token is. Emits kEvicted.
  virtual void after_prompt(const Groups& /*groups*/, EventSink& /*events*/) {}
  virtual void after_step(Token /*token*/, const Groups& /*groups*/, EventSink& /*events*/) {}
  /// Whether on_attention is wanted; the prompt's window costs a pass over its keys.
  [[nodiscard]] virtual bool needs_attention() const { return false; }
};

}  // namespace kvreplay
