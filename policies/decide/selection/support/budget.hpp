#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/decide/selection/selection.hpp"

namespace kvreplay {

/// How many tokens a row may select: a fixed number, or a share of the tokens so far, minus the
/// tokens that the step attends to anyway where the budget also covers those.
class Budget {
 public:
  /// budget_tokens (`default_tokens`), budget_share, budget_covers.
  [[nodiscard]] static std::vector<Parameter> parameters(std::int64_t default_tokens);
  Budget(const Arguments& arguments, const Selection::Context& context);

  /// The budget at this step; at least 0.
  [[nodiscard]] std::int64_t tokens(const Groups& groups) const;
  [[nodiscard]] bool is_share() const { return tokens_ == 0; }
  /// The budget in tokens; 0 where it is a share.
  [[nodiscard]] std::int64_t fixed_tokens() const {
    return covers_ == Covers::kSinks ? std::max<std::int64_t>(0, tokens_ - sink_tokens_) : tokens_;
  }
  [[nodiscard]] bool covers_all() const { return covers_ == Covers::kAll; }
  /// No step's budget is larger in a sequence of `tokens`.
  [[nodiscard]] std::int64_t most_tokens(std::int64_t tokens) const;

 private:
  enum class Covers { kSelected, kSinks, kAll };

  std::int64_t tokens_;
  double share_;
  Covers covers_;
  std::int64_t sink_tokens_;
};

/// The live groups of a row in descending order of score, ties by ascending number.
class BestGroups {
 public:
  /// At most the first `count` of them. The view is valid until the next call.
  [[nodiscard]] std::span<const GroupId> find(std::span<const float> scores, std::int64_t count);

 private:
  std::vector<GroupId> groups_;
};

}  // namespace kvreplay
