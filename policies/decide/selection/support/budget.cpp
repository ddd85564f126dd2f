#include "policies/decide/selection/support/budget.hpp"

#include <algorithm>
#include <cmath>

#include "policies/kernels/kernels.hpp"

namespace kvreplay {

std::vector<Parameter> Budget::parameters(std::int64_t default_tokens) {
  return {integer_parameter("budget_tokens", "tokens", default_tokens, {0, 1e9},
                            "tokens that a query head may select; 0 = by budget_share"),
          real_parameter("budget_share", "", 0, {0, 1},
                         "the budget as a share of the tokens so far, with budget_tokens = 0"),
          choice_parameter(
              "budget_covers", {"selected", "sinks", "all"}, "selected",
              "what counts towards the budget: selected tokens alone; with the sinks; or with all "
              "that is attended to (sinks, recent and buffered tokens, the step's own)")};
}

Budget::Budget(const Arguments& arguments, const Selection::Context& context)
    : tokens_(arguments.integer("budget_tokens")),
      share_(arguments.real("budget_share")),
      sink_tokens_(context.sink_tokens) {
  if (tokens_ == 0 && share_ == 0) {
    throw UserError(arguments.place("budget_tokens"), "found 0, and 0 for budget_share",
                    "one of them above 0");
  }
  const std::string& covers = arguments.text("budget_covers");
  covers_ = covers == "sinks" ? Covers::kSinks : covers == "all" ? Covers::kAll : Covers::kSelected;
}

std::int64_t Budget::tokens(const Groups& groups) const {
  const std::int64_t in_memory = std::ssize(groups.buffered());
  std::int64_t tokens = tokens_;
  if (tokens == 0) {
    const auto so_far = static_cast<double>(groups.grouped_tokens() + in_memory);
    tokens = static_cast<std::int64_t>(std::floor(share_ * so_far));
  }
  if (covers_ == Covers::kSinks) tokens -= sink_tokens_;
  if (covers_ == Covers::kAll) tokens -= in_memory + 1;
  return std::max<std::int64_t>(tokens, 0);
}

std::int64_t Budget::most_tokens(std::int64_t tokens) const {
  if (tokens_ > 0) return std::min(tokens_, tokens);
  return static_cast<std::int64_t>(std::ceil(share_ * static_cast<double>(tokens)));
}

std::span<const GroupId> BestGroups::find(std::span<const float> scores, std::int64_t count) {
  const std::int64_t kept = std::min(count, std::ssize(scores));
  groups_.resize(static_cast<std::size_t>(kept));
  kernels::top_k(scores.data(), std::ssize(scores), kept, groups_);
  std::erase_if(groups_,
                [&](GroupId group) { return std::isinf(scores[static_cast<std::size_t>(group)]); });
  std::sort(groups_.begin(), groups_.end(), [&](GroupId a, GroupId b) {
    const float first = scores[static_cast<std::size_t>(a)];
    const float second = scores[static_cast<std::size_t>(b)];
    return first != second ? first > second : a < b;
  });
  return groups_;
}

}  // namespace kvreplay
