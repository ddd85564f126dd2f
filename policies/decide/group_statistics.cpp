#include "policies/decide/group_statistics.hpp"

#include <algorithm>
#include <functional>

#include "policies/decide/grouping/support/clusters.hpp"

namespace kvreplay {
namespace {

/// The groups that the events of a step change, ascending.
std::vector<GroupId> updated_groups(const StreamLog& log, std::int64_t step) {
  std::vector<GroupId> updated;
  log.for_events(step + 1, [&](const GroupEvent& event) {
    if (event.group == kNoGroup) return;
    switch (event.kind) {
      case EventKind::kSplit:
        updated.push_back(event.other);
        [[fallthrough]];
      case EventKind::kAppended:
      case EventKind::kBuffered:
        updated.push_back(event.group);
        break;
      default:
        break;
    }
  });
  std::sort(updated.begin(), updated.end());
  updated.erase(std::unique(updated.begin(), updated.end()), updated.end());
  return updated;
}

}  // namespace

Mean group_variance(const StreamLog& log, const Entries& entries) {
  Groups groups;
  for (std::int64_t e = 0; e < std::ssize(log.event_kind); ++e) groups.on_event(log.event(e));
  Mean mean;
  for (GroupId group = 0; group < groups.count(); ++group) {
    const Moments moments(entries, groups.members(group));
    mean += {moments.variance() * static_cast<double>(moments.count()), moments.count()};
  }
  return mean;
}

std::vector<Mean> selected_after_update(const StreamLog& log,
                                        std::span<const std::int64_t> within) {
  std::vector<Mean> means(within.size());
  const std::int64_t longest = within.empty() ? 0 : *std::max_element(within.begin(), within.end());
  for (std::int64_t step = 0; step < log.steps(); ++step) {
    for (const GroupId group : updated_groups(log, step)) {
      std::int64_t first = 1;  // steps until the group is next requested
      while (first <= longest && step + first < log.steps() &&
             !log.requested.contains(step + first, group)) {
        ++first;
      }
      for (std::size_t i = 0; i < within.size(); ++i) {
        if (step + within[i] < log.steps()) means[i].add(first <= within[i] ? 1 : 0);
      }
    }
  }
  return means;
}

Mean reused_groups(const StreamLog& log) {
  Mean mean;
  std::vector<GroupId> before;
  for (std::int64_t step = 0; step < log.steps(); ++step) {
    std::vector<GroupId> requested = log.requested.numbers(step);
    for (const GroupId group : requested) {
      if (step == 0) break;
      mean.add(std::binary_search(before.begin(), before.end(), group) ? 1 : 0);
    }
    before = std::move(requested);
  }
  return mean;
}

Mean hot_groups(const StreamLog& log, double share) {
  Groups groups;
  for (std::int64_t e = 0; e < std::ssize(log.event_kind); ++e) groups.on_event(log.event(e));
  std::vector<std::int64_t> requested(static_cast<std::size_t>(groups.count()), 0);
  std::int64_t accesses = 0;
  for (std::int64_t step = 0; step < log.steps(); ++step) {
    log.requested.for_each(step, [&](GroupId group) {
      ++requested[static_cast<std::size_t>(group)];
      ++accesses;
    });
  }
  Mean hot;
  for (GroupId group = 0; group < groups.count(); ++group) {
    if (groups.live(group) || requested[static_cast<std::size_t>(group)] > 0) ++hot.count;
  }
  std::sort(requested.begin(), requested.end(), std::greater<>());
  double left = share * static_cast<double>(accesses);
  for (std::size_t i = 0; i < requested.size() && left > 0; ++i) {
    left -= static_cast<double>(requested[i]);
    hot.sum += 1;
  }
  return hot;
}

Mean attended_in_page(const StreamLog& log, std::int64_t page_tokens) {
  Mean mean;
  for (std::int64_t row = 0; row < log.attended.size(); ++row) {
    std::int64_t page = -1;
    std::int64_t in_page = 0;
    const auto end_page = [&] {
      if (in_page > 0) mean.add(static_cast<double>(in_page));
      in_page = 0;
    };
    log.attended.for_each(row, [&](Token token) {
      if (token / page_tokens != page) end_page();
      page = token / page_tokens;
      ++in_page;
    });
    end_page();
  }
  return mean;
}

namespace {

/// By token, at the end of the log.
struct Fates {
  std::vector<bool> evicted;
  std::vector<bool> reencoded;
};

Fates fates_of(const StreamLog& log, std::int64_t tokens) {
  const auto count = static_cast<std::size_t>(tokens);
  Fates fates{std::vector<bool>(count), std::vector<bool>(count)};
  for (std::int64_t e = 0; e < std::ssize(log.event_kind); ++e) {
    const GroupEvent event = log.event(e);
    for (const Token token : event.tokens) {
      const auto at = static_cast<std::size_t>(token);
      if (event.kind == EventKind::kEvicted) fates.evicted[at] = true;
      if (event.kind == EventKind::kReencoded) fates.reencoded[at] = event.other != 0;
    }
  }
  return fates;
}

}  // namespace

Mean evicted_tokens(const StreamLog& log, std::int64_t tokens) {
  const Fates fates = fates_of(log, tokens);
  Mean mean;
  for (const bool evicted : fates.evicted) mean.add(evicted ? 1 : 0);
  return mean;
}

Mean reencoded_tokens(const StreamLog& log, std::int64_t tokens) {
  const Fates fates = fates_of(log, tokens);
  Mean mean;
  for (std::size_t token = 0; token < fates.evicted.size(); ++token) {
    if (!fates.evicted[token]) mean.add(fates.reencoded[token] ? 1 : 0);
  }
  return mean;
}

}  // namespace kvreplay
