#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/statistics.hpp"
#include "policies/decide/log/access_log.hpp"
#include "policies/decide/log/stream.hpp"

namespace kvreplay {

/// Over the tokens in groups when the log ends: squared distance of a token's key from the mean key
/// of its group. `entries` are the stream's. (DynaKV, Table 5)
[[nodiscard]] Mean group_variance(const StreamLog& log, const Entries& entries);

/// [within.size()], over the updates of decode steps: whether the group is asked for within the
/// next within[i] steps. An update is a group to which a step appends, that it splits, makes by a
/// split, or buffers tokens for. The last within[i] steps, whose future is unknown, do not count.
/// (DynaKV, Table 2)
[[nodiscard]] std::vector<Mean> selected_after_update(const StreamLog& log,
                                                      std::span<const std::int64_t> within);

/// Over the groups that steps ask for, from the second step on: whether the step before did too.
[[nodiscard]] Mean reused_groups(const StreamLog& log);

/// The groups that are asked for most, as few as give `share` of all that the steps ask for, among
/// all groups that live when the log ends or were asked for: sum / count. (KVSwap, Figure 8)
[[nodiscard]] Mean hot_groups(const StreamLog& log, double share);

/// Over steps and query heads: the tokens that a query head attends to in a page of `page_tokens`
/// consecutive ones, of the pages where it attends to any. The log must name the tokens.
/// (ClusterKV, Figure 3b)
[[nodiscard]] Mean attended_in_page(const StreamLog& log, std::int64_t page_tokens);

/// When the log ends, of the stream's `tokens`: how many are evicted; and of those that are left,
/// how many are not in the first format. (ARKV, Table VII)
[[nodiscard]] Mean evicted_tokens(const StreamLog& log, std::int64_t tokens);
[[nodiscard]] Mean reencoded_tokens(const StreamLog& log, std::int64_t tokens);

}  // namespace kvreplay
