#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/registry.hpp"
#include "policies/decide/log/groups.hpp"
#include "policies/decide/scoring/scoring.hpp"

namespace kvreplay {

/// What one row picked: groups in order of preference. All members of each group are attended to,
/// except for the last group, where only the first `last_tokens` members are (a trimmed group).
struct RowSelection {
  std::vector<GroupId> groups;
  std::int64_t last_tokens = 0;

  void clear() {
    groups.clear();
    last_tokens = 0;
  }
  /// Every member of the group.
  void take_whole(GroupId group, const Groups& members) {
    groups.push_back(group);
    last_tokens = static_cast<std::int64_t>(members.members(group).size());
  }
};

/// Role: turns scores into selected groups and tokens.
class Selection {
 public:
  static constexpr std::string_view kRole = "selection";
  static constexpr Stage kStage = Stage::kDecide;
  struct Context {
    StreamShape shape;
    std::int64_t sink_tokens = 0;  ///< always kept in addition to the selection
  };

  virtual ~Selection() = default;

  /// Fills selected[r] for each row of the scores. `selected` has scores.rows elements, which may
  /// still hold an earlier step's picks.
  virtual void select(const Scores& scores, const Groups& groups,
                      std::vector<RowSelection>& selected) = 0;
  /// Whether a row's budget is a share of the tokens so far.
  [[nodiscard]] virtual bool selects_share() const { return false; }
  /// The most tokens that a row selects of a sequence of any length; 0 = no such number.
  [[nodiscard]] virtual std::int64_t most_tokens() const { return 0; }
  /// Whether that number counts those in memory outside groups and the step's own.
  [[nodiscard]] virtual bool most_covers_all() const { return false; }
  /// About how many runs of consecutive groups a row selects at most, of a sequence of so many
  /// tokens: what a log has to hold.
  [[nodiscard]] virtual std::int64_t most_runs(std::int64_t tokens) const = 0;
};

}  // namespace kvreplay
