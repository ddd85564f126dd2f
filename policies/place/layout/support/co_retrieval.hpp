#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policies/decide/log/groups.hpp"

namespace kvreplay {

/// The groups that each of the prompt's last queries would select: query i those of
/// requested[begin[i], begin[i + 1]). Without queries both are empty or `begin` is [0].
struct WindowSelections {
  std::span<const std::int64_t> begin{};
  std::span<const GroupId> requested{};
};

struct GroupPair {
  GroupId left = kNoGroup;
  GroupId right = kNoGroup;  ///< kNoGroup: one of an odd number is left alone
};

/// Orders `groups` (ascending) by co-retrieval: f(i, j) is the number of queries that select both i
/// and j (DynaKV 4). The pair with the largest f comes first, then the pair with the largest f of
/// the groups that are left, and so on; ties go to the lower groups; those that share no query are
/// paired in ascending order. Then the pairs are chained: after a pair comes the one, not yet in
/// the chain, that has the group of the largest f with the chain's last group, and that group
/// stands on its left; where none has f > 0, the best pair that is left. (the greedy rules are
/// ours)
[[nodiscard]] std::vector<GroupPair> chain_of_pairs(const WindowSelections& window,
                                                    std::span<const GroupId> groups);

}  // namespace kvreplay
