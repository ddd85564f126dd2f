#include "policies/place/layout/support/co_retrieval.hpp"

#include <algorithm>
#include <utility>

namespace kvreplay {
namespace {

struct Edge {
  GroupId low;
  GroupId high;
  std::int64_t count;
};

/// In descending order of count, ties by the lower groups. A query selects a group once.
std::vector<Edge> co_retrieved(const WindowSelections& window, const std::vector<bool>& wanted) {
  const auto selected_by = [&](std::size_t query) {
    return window.requested.subspan(
        static_cast<std::size_t>(window.begin[query]),
        static_cast<std::size_t>(window.begin[query + 1] - window.begin[query]));
  };
  std::vector<std::vector<std::size_t>> queries_of(wanted.size());
  for (std::size_t query = 0; query + 1 < window.begin.size(); ++query) {
    for (const GroupId group : selected_by(query)) {
      const auto at = static_cast<std::size_t>(group);
      if (at < wanted.size() && wanted[at]) queries_of[at].push_back(query);
    }
  }
  // One group after the other: a table of all pairs would be large where a group is a token.
  std::vector<Edge> edges;
  std::vector<std::int64_t> counts(wanted.size());
  std::vector<GroupId> partners;
  for (std::size_t at = 0; at < wanted.size(); ++at) {
    const auto low = static_cast<GroupId>(at);
    partners.clear();
    for (const std::size_t query : queries_of[at]) {
      for (const GroupId high : selected_by(query)) {
        const auto other = static_cast<std::size_t>(high);
        if (high <= low || other >= wanted.size() || !wanted[other]) continue;
        if (counts[other]++ == 0) partners.push_back(high);
      }
    }
    std::sort(partners.begin(), partners.end());
    for (const GroupId high : partners) {
      edges.push_back({low, high, std::exchange(counts[static_cast<std::size_t>(high)], 0)});
    }
  }
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

const std::vector<GroupPair>& PairChains::of(const WindowSelections& window,
                                             std::span<const GroupId> groups) {
  for (const Known& known : known_) {
    const bool same_window = known.window.begin.data() == window.begin.data() &&
                             known.window.begin.size() == window.begin.size() &&
                             known.window.requested.data() == window.requested.data();
    if (same_window &&
        std::equal(known.groups.begin(), known.groups.end(), groups.begin(), groups.end())) {
      return known.chain;
    }
  }
  known_.push_back({window, {groups.begin(), groups.end()}, chain_of_pairs(window, groups)});
  return known_.back().chain;
}

}  // namespace kvreplay
