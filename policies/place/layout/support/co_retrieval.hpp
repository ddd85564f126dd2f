#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policies/decide/log/groups.hpp"

namespace kvreplay {

/// The groups that each of the prompt's last queries would select. Query i selects
/// requested[begin[i], begin[i + 1]). Without queries, both are empty or `begin` is [0].
struct WindowSelections {
  std::span<const std::int64_t> begin{};
  std::span<const GroupId> requested{};
};

struct GroupPair {
  GroupId left = kNoGroup;
  GroupId right = kNoGroup;  ///< kNoGroup where one of an odd number is left alone
};

/// Orders `groups` (ascending) by co-retrieval: f(i, j) is the number of queries that select both i
/// and j (DynaKV 4). First the groups are paired greedily: the pair with the largest f, then the
/// pair with the largest f among the remaining groups, and so on. Ties go to the lower groups, and
/// groups that share no query are paired in ascending order. Then the pairs are chained. The next
/// pair in the chain is the one that has the group with the largest f to the chain's last group,
/// and that group becomes its left one. Where no f is above 0, the next pair is the best remaining
/// one. The greedy rules are ours.
[[nodiscard]] std::vector<GroupPair> chain_of_pairs(const WindowSelections& window,
                                                    std::span<const GroupId> groups);

/// Remembers chains: where a model has more KV heads than were recorded, several of its streams
/// have the window and the groups of one recorded stream. The windows must outlive this object.
class PairChains {
 public:
  /// chain_of_pairs(). The reference is valid until the next call.
  [[nodiscard]] const std::vector<GroupPair>& of(const WindowSelections& window,
                                                 std::span<const GroupId> groups);

 private:
  struct Known {
    WindowSelections window;
    std::vector<GroupId> groups;
    std::vector<GroupPair> chain;
  };
  std::vector<Known> known_;
};

}  // namespace kvreplay
