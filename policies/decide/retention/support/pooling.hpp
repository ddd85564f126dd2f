#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/parameters.hpp"

namespace kvreplay {

/// UserError where window_tokens leaves nothing of the argument `budget`, or pool_tokens is even.
void check_window_and_pool(const Arguments& arguments, const std::string& budget);

enum class Pool { kMean, kMaximum };

/// 1-D pooling with stride 1 over an odd number of neighbours; the length stays the same. Beyond
/// the scores, the mean sees zeros, which count in the divisor, and the maximum sees nothing.
[[nodiscard]] std::vector<float> pooled(std::span<const float> scores, std::int64_t kernel,
                                        Pool pool);

/// Positions of the `heavy` best of the first `scores.size()` positions (ties go to the lower),
/// followed by all positions from there to `count`; ascending.
[[nodiscard]] std::vector<std::int32_t> best_and_rest(std::span<const float> scores,
                                                      std::int64_t heavy, std::int64_t count);

}  // namespace kvreplay
