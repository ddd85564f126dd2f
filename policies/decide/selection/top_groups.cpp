#include "policies/decide/selection/support/budget.hpp"

namespace kvreplay {
namespace {

/// Takes the best groups, whole: a fixed number of them, or as many as fit the budget.
class TopGroups final : public Selection {
 public:
  TopGroups(std::int64_t groups, const Budget& budget) : groups_(groups), budget_(budget) {}

  void select(const Scores& scores, const Groups& groups,
              std::vector<RowSelection>& selected) override {
    for (std::int64_t r = 0; r < scores.rows; ++r) {
      RowSelection& row = selected[static_cast<std::size_t>(r)];
      row.clear();
      if (groups_ > 0) {
        for (const GroupId group : best_.find(scores.row(r), groups_)) {
          row.take_whole(group, groups);
        }
        continue;
      }
      std::int64_t left = budget_.tokens(groups);
      for (const GroupId group : best_.find(scores.row(r), left)) {
        left -= std::ssize(groups.members(group));
        if (left < 0) break;
        row.take_whole(group, groups);
      }
    }
  }

  [[nodiscard]] bool selects_share() const override { return groups_ == 0 && budget_.is_share(); }
  [[nodiscard]] std::int64_t most_tokens() const override {
    return groups_ > 0 ? 0 : budget_.fixed_tokens();
  }
  [[nodiscard]] bool most_covers_all() const override { return budget_.covers_all(); }
  [[nodiscard]] std::int64_t most_runs(std::int64_t tokens) const override {
    return groups_ > 0 ? groups_ : budget_.most_tokens(tokens);
  }

 private:
  std::int64_t groups_;
  Budget budget_;
  BestGroups best_;
};

std::vector<Parameter> top_groups_parameters() {
  std::vector<Parameter> all = Budget::parameters(256);
  all.push_back(integer_parameter("groups", "groups", 0, {0, 1e9},
                                  "groups that a query head selects; 0 = by the token budget"));
  return all;
}

const Registered<Selection> kTopGroups({
    .name = "top_groups",
    .help = "the best groups, whole: a fixed number, or as many as fit the token budget",
    .source = "Quest (Tang et al., 2024), section 3; KVSwap: M groups of G with M G = budget",
    .parameters = top_groups_parameters(),
    .make =
        [](const Arguments& arguments, const Selection::Context& context) {
          return std::make_unique<TopGroups>(arguments.integer("groups"),
                                             Budget(arguments, context));
        },
});

}  // namespace
}  // namespace kvreplay
