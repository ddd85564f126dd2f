#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/registry.hpp"
#include "policies/decide/log/groups.hpp"
#include "policies/decide/log/prompt_work.hpp"

namespace kvreplay {

/// Role: which tokens leave for good. It evicts tokens from their groups or from memory.
class Retention {
 public:
  static constexpr std::string_view kRole = "retention";
  static constexpr Stage kStage = Stage::kDecide;
  static constexpr std::string_view kDefaultPart = "all";
  struct Context {
    StreamShape shape;
    std::int64_t prompt_tokens = 0;
    double layer_ratio = 1;  ///< this layer's layer_score() divided by the largest of all layers
  };

  virtual ~Retention() = default;

  /// The result of a query head's attention: the weights of `tokens` (ascending). Called for the
  /// prompt's last queries before after_prompt, and once per step before after_step.
  virtual void notify_attention(std::int64_t /*query_head*/, Token /*position*/,
                                std::span<const Token> /*tokens*/,
                                std::span<const float> /*weights*/) {}
  /// Called once the prompt's tokens are placed, and after each step's token is. Emits kEvicted.
  virtual void after_prompt(const Groups& /*groups*/, EventSink& /*events*/) {}
  virtual void after_step(Token /*token*/, const Groups& /*groups*/, EventSink& /*events*/) {}
  /// What the choice among a prompt of so many tokens took, at the stream's own shape.
  [[nodiscard]] virtual PromptWork prompt_work(std::int64_t /*tokens*/) const { return {}; }
  /// Whether the part needs notify_attention; the prompt's window costs a pass over its keys.
  [[nodiscard]] virtual bool needs_attention() const { return false; }

  /// Whether the part divides a budget among the layers. If so, it is first constructed once per
  /// layer for all of the layer's KV heads jointly, given only the prompt's notify_attention calls,
  /// and queried for layer_score(); the parts that do the work are constructed with the resulting
  /// layer_ratio.
  [[nodiscard]] virtual bool compares_layers() const { return false; }
  [[nodiscard]] virtual double layer_score() const { return 0; }
  /// The most tokens that the part keeps of a prompt of any length; 0 = no such number.
  [[nodiscard]] virtual std::int64_t most_tokens() const { return 0; }
  /// Whether the part keeps a share of the prompt's tokens.
  [[nodiscard]] virtual bool keeps_share() const { return false; }
  /// Whether the part emits kReencoded, between formats 0 and 1; the precision part must then
  /// accept it.
  [[nodiscard]] virtual bool reencodes() const { return false; }
};

}  // namespace kvreplay
