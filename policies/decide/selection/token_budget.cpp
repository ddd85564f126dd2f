#include <algorithm>

#include "policies/decide/selection/support/budget.hpp"

namespace kvreplay {
namespace {

/// Takes the best groups until the budget is full; the last one is trimmed to the remaining budget.
class TokenBudget final : public Selection {
 public:
  explicit TokenBudget(const Budget& budget) : budget_(budget) {}

  void select(const Scores& scores, const Groups& groups,
              std::vector<RowSelection>& selected) override {
    const std::int64_t budget = budget_.tokens(groups);
    for (std::int64_t r = 0; r < scores.rows; ++r) {
      RowSelection& row = selected[static_cast<std::size_t>(r)];
      row.clear();
      std::int64_t left = budget;
      for (const GroupId group : best_.find(scores.row(r), budget)) {
        row.take_whole(group, groups);
        row.last_tokens = std::min(left, row.last_tokens);
        left -= row.last_tokens;
        if (left == 0) break;
      }
    }
  }

  [[nodiscard]] bool selects_share() const override { return budget_.is_share(); }
  [[nodiscard]] std::int64_t most_tokens() const override { return budget_.fixed_tokens(); }
  [[nodiscard]] bool most_covers_all() const override { return budget_.covers_all(); }
  [[nodiscard]] std::int64_t most_runs(std::int64_t tokens) const override {
    return budget_.most_tokens(tokens);
  }

 private:
  Budget budget_;
  BestGroups best_;
};

const Registered<Selection> kTokenBudget({
    .name = "token_budget",
    .help = "the best groups until a number of tokens is reached; the last group is trimmed",
    .source = "ClusterKV (Liu et al., 2025), section III-C and its released code",
    .parameters = Budget::parameters(1024),
    .make =
        [](const Arguments& arguments, const Selection::Context& context) {
          return std::make_unique<TokenBudget>(Budget(arguments, context));
        },
});

}  // namespace
}  // namespace kvreplay
