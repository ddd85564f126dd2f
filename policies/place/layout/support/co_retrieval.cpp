#include "policies/place/layout/support/co_retrieval.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace kvreplay {
namespace {

struct Edge {
  GroupId low;
  GroupId high;
  std::int64_t count;
};

/// In descending order of count, ties by the lower groups.
std::vector<Edge> co_retrieved(const WindowSelections& window, const std::vector<bool>& wanted) {
  std::map<std::pair<GroupId, GroupId>, std::int64_t> counts;
  for (std::size_t query = 0; query + 1 < window.begin.size(); ++query) {
    const auto selected = window.requested.subspan(
        static_cast<std::size_t>(window.begin[query]),
        static_cast<std::size_t>(window.begin[query + 1] - window.begin[query]));
    for (std::size_t i = 0; i < selected.size(); ++i) {
      for (std::size_t j = i + 1; j < selected.size(); ++j) {
        const auto [low, high] = std::minmax(selected[i], selected[j]);
        if (static_cast<std::size_t>(high) >= wanted.size()) continue;
        if (!wanted[static_cast<std::size_t>(low)] || !wanted[static_cast<std::size_t>(high)]) {
          continue;
        }
        ++counts[{low, high}];
      }
    }
  }
  std::vector<Edge> edges;
  for (const auto& [groups, count] : counts) edges.push_back({groups.first, groups.second, count});
  std::stable_sort(edges.begin(), edges.end(),
                   [](const Edge& a, const Edge& b) { return a.count > b.count; });
  return edges;
}

constexpr std::ptrdiff_t kNoPair = -1;

}  // namespace

std::vector<GroupPair> chain_of_pairs(const WindowSelections& window,
                                      std::span<const GroupId> groups) {
  if (groups.empty()) return {};
  const auto limit = static_cast<std::size_t>(groups.back()) + 1;
  std::vector<bool> wanted(limit);
  for (const GroupId group : groups) wanted[static_cast<std::size_t>(group)] = true;
  const std::vector<Edge> edges = co_retrieved(window, wanted);

  std::vector<GroupPair> pairs;
  std::vector<std::ptrdiff_t> pair_of(limit, kNoPair);
  const auto add = [&](GroupId left, GroupId right) {
    for (const GroupId group : {left, right}) {
      if (group != kNoGroup) pair_of[static_cast<std::size_t>(group)] = std::ssize(pairs);
    }
    pairs.push_back({left, right});
  };
  const auto is_free = [&](GroupId group) {
    return pair_of[static_cast<std::size_t>(group)] == kNoPair;
  };
  for (const Edge& edge : edges) {
    if (is_free(edge.low) && is_free(edge.high)) add(edge.low, edge.high);
  }
  GroupId single = kNoGroup;
  for (const GroupId group : groups) {
    if (!is_free(group)) continue;
    if (single == kNoGroup) {
      single = group;
    } else {
      add(std::exchange(single, kNoGroup), group);
    }
  }
  if (single != kNoGroup) add(single, kNoGroup);

  std::vector<std::vector<GroupId>> neighbours(limit);  // by descending count
  for (const Edge& edge : edges) {
    neighbours[static_cast<std::size_t>(edge.low)].push_back(edge.high);
    neighbours[static_cast<std::size_t>(edge.high)].push_back(edge.low);
  }
  std::vector<GroupPair> chain;
  std::vector<bool> chained(pairs.size());
  const auto append = [&](std::size_t pair) {
    chained[pair] = true;
    chain.push_back(pairs[pair]);
  };
  for (std::size_t next = 0; next < pairs.size();) {
    if (chained[next]) {
      ++next;
      continue;
    }
    append(next);
    for (bool found = true; found;) {
      const GroupPair& last = chain.back();
      const GroupId tail = last.right != kNoGroup ? last.right : last.left;
      found = false;
      for (const GroupId group : neighbours[static_cast<std::size_t>(tail)]) {
        const auto pair = static_cast<std::size_t>(pair_of[static_cast<std::size_t>(group)]);
        if (chained[pair]) continue;
        append(pair);
        if (chain.back().right == group) std::swap(chain.back().left, chain.back().right);
        found = true;
        break;
      }
    }
  }
  return chain;
}

}  // namespace kvreplay
