// By hand: no library that kvreplay links to has rank correlations.

#pragma once

#include <span>

namespace kvreplay {

/// Spearman's rho: the correlation of ranks, equal values sharing their mean rank. NaN where either
/// list has one value only, or all are equal.
[[nodiscard]] double spearman(std::span<const double> a, std::span<const double> b);

/// Kendall's tau-b: concordant less discordant pairs, over the geometric mean of the pairs that are
/// not tied in each list. NaN where that is 0. (Kendall 1945)
[[nodiscard]] double kendall(std::span<const double> a, std::span<const double> b);

}  // namespace kvreplay
