#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/statistics.hpp"
#include "policies/decide/log/access_log.hpp"
#include "policies/decide/log/stream.hpp"

namespace kvreplay {

/// Over the tokens in groups at the end of the log: the squared distance of a token's key from the
/// mean key of its group. `entries` are those of the stream. (DynaKV, Table 5)
[[nodiscard]] Mean group_variance(const StreamLog& log, const Entries& entries);

/// [within.size()], over the updates of decode steps: whether the group is requested within the
/// next within[i] steps. An update is a group to which a step appends, that it splits, that it
/// creates by a split, or for which it buffers tokens. The last within[i] steps do not count,
/// because their future is unknown. (DynaKV, Table 2)
[[nodiscard]] std::vector<Mean> selected_after_update(const StreamLog& log,
                                                      std::span<const std::int64_t> within);

/// Over the groups that steps request, from the second step on: whether the previous step requested
/// the group too.
[[nodiscard]] Mean reused_groups(const StreamLog& log);

/// The fewest most-requested groups that account for `share` of all requests by steps, as a share
/// of all groups that live at the end of the log or were requested: sum / count. (KVSwap, Figure 8)
[[nodiscard]] Mean hot_groups(const StreamLog& log, double share);

/// Over steps, query heads and pages of `page_tokens` consecutive tokens: the number of tokens that
/// a query head attends to in a page, for the pages where it attends to any. The log must name the
/// tokens. (ClusterKV, Figure 3b)
[[nodiscard]] Mean attended_in_page(const StreamLog& log, std::int64_t page_tokens);

/// At the end of the log, of the stream's `tokens`: how many are evicted, and how many of the
/// others are not in the first format. (ARKV, Table VII)
[[nodiscard]] Mean evicted_tokens(const StreamLog& log, std::int64_t tokens);
[[nodiscard]] Mean reencoded_tokens(const StreamLog& log, std::int64_t tokens);

}  // namespace kvreplay
