#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/registry.hpp"
#include "policies/decide/log/groups.hpp"

namespace kvreplay {

/// Role: what leaves for good. It evicts tokens from their groups or from memory.
class Retention {
 public:
  static constexpr std::string_view kRole = "retention";
  static constexpr Stage kStage = Stage::kDecide;
  static constexpr std::string_view kDefaultPart = "all";
  struct Context {
    StreamShape shape;
    std::int64_t prompt_tokens = 0;
    double layer_ratio = 1;  ///< this layer's layer_score() over the largest of all layers
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

  /// Whether the part shares a budget out among the layers. Then it is first made once a layer for
  /// all of the layer's KV heads jointly, given the prompt's on_attention calls alone, and asked
  /// for layer_score(); the parts that work are made with the layer_ratio that follows.
  [[nodiscard]] virtual bool compares_layers() const { return false; }
  [[nodiscard]] virtual double layer_score() const { return 0; }
  /// Whether the part emits kReencoded, between formats 0 and 1: then the precision part must
  /// accept it.
  [[nodiscard]] virtual bool reencodes() const { return false; }
};

}  // namespace kvreplay
