// By hand: no library that kvreplay links to has rank correlations.

#pragma once

#include <span>

namespace kvreplay {

/// Spearman's rho: the correlation of ranks, where equal values share their mean rank. NaN where
/// either list has only one value, or all its values are equal.
[[nodiscard]] double spearman(std::span<const double> a, std::span<const double> b);

/// Kendall's tau-b: concordant minus discordant pairs, divided by the geometric mean of the pairs
/// that are not tied in each list. NaN where that mean is 0. (Kendall 1945)
[[nodiscard]] double kendall(std::span<const double> a, std::span<const double> b);

}  // namespace kvreplay
