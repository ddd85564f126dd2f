#include <algorithm>
#include <cmath>

#include "policies/decide/selection/support/budget.hpp"

namespace kvreplay {
namespace {

/// Each row counts the groups whose logit is within alpha of its best one. Every row then selects
/// the mean of these counts over the rows, best first, within the budget.
class Threshold final : public Selection {
 public:
  Threshold(double alpha, const Budget& cap, const StreamShape& shape)
      : alpha_(static_cast<float>(alpha)), softmax_scale_(shape.softmax_scale), cap_(cap) {}

  void select(const Scores& scores, const Groups& groups,
              std::vector<RowSelection>& selected) override {
    const std::int64_t count = mean_count(scores);
    const std::int64_t cap = cap_.tokens(groups);
    for (std::int64_t r = 0; r < scores.rows; ++r) {
      RowSelection& row = selected[static_cast<std::size_t>(r)];
      row.clear();
      std::int64_t left = cap;
      for (const GroupId group : best_.find(scores.row(r), std::min(count, cap))) {
        left -= std::ssize(groups.members(group));
        if (left < 0) break;
        row.take_whole(group, groups);
      }
    }
  }

  [[nodiscard]] bool selects_share() const override { return cap_.is_share(); }
  [[nodiscard]] std::int64_t most_tokens() const override { return cap_.fixed_tokens(); }
  [[nodiscard]] bool most_covers_all() const override { return cap_.covers_all(); }
  [[nodiscard]] std::int64_t most_runs(std::int64_t tokens) const override {
    return cap_.most_tokens(tokens);
  }

 private:
  /// Rounded down, as the released code does.
  [[nodiscard]] std::int64_t mean_count(const Scores& scores) const {
    if (scores.groups == 0) return 0;
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < scores.rows; ++r) {
      const std::span<const float> row = scores.row(r);
      const float min_score = *std::max_element(row.begin(), row.end()) * softmax_scale_ - alpha_;
      count += std::count_if(row.begin(), row.end(),
                             [&](float score) { return score * softmax_scale_ > min_score; });
    }
    return count / scores.rows;
  }

  float alpha_;
  float softmax_scale_;
  Budget cap_;
  BestGroups best_;
};

std::vector<Parameter> threshold_parameters() {
  std::vector<Parameter> all = Budget::parameters(400);
  all.push_back(real_parameter("alpha", "", 5, {0, 1000},
                               "how far below the best scaled logit a group may lie; 4 for OPT, 5 "
                               "for Llama 2 in InfiniGen's evaluation"));
  return all;
}

const Registered<Selection> kThreshold({
    .name = "threshold",
    .help = "groups whose logit exceeds the best one minus alpha: the mean count over heads, with "
            "the budget as a cap; for scores that are unscaled logits",
    .source = "InfiniGen (Lee et al., OSDI 2024), section 4.3 and its released code",
    .parameters = threshold_parameters(),
    .make =
        [](const Arguments& arguments, const Selection::Context& context) {
          return std::make_unique<Threshold>(arguments.real("alpha"), Budget(arguments, context),
                                             context.shape);
        },
});

}  // namespace
}  // namespace kvreplay
