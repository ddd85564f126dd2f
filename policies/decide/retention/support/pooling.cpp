#include "policies/decide/retention/support/pooling.hpp"

#include <algorithm>
#include <numeric>

#include "policies/kernels/kernels.hpp"

namespace kvreplay {

std::vector<float> pooled(std::span<const float> scores, std::int64_t kernel, Pool pool) {
  const std::int64_t n = std::ssize(scores);
  const std::int64_t reach = kernel / 2;
  std::vector<float> result;
  result.reserve(scores.size());
  for (std::int64_t i = 0; i < n; ++i) {
    const auto begin = scores.begin() + std::max<std::int64_t>(i - reach, 0);
    const auto end = scores.begin() + std::min(i + reach + 1, n);
    result.push_back(pool == Pool::kMaximum
                         ? *std::max_element(begin, end)
                         : std::accumulate(begin, end, 0.0f) / static_cast<float>(kernel));
  }
  return result;
}

std::vector<std::int32_t> best_and_rest(std::span<const float> scores, std::int64_t heavy,
                                        std::int64_t count) {
  const std::int64_t candidates = std::ssize(scores);
  heavy = std::min(heavy, candidates);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(heavy + count - candidates));
  kernels::top_k(scores.data(), candidates, heavy,
                 std::span(positions).first(static_cast<std::size_t>(heavy)));
  std::iota(positions.begin() + heavy, positions.end(), static_cast<std::int32_t>(candidates));
  return positions;
}

}  // namespace kvreplay
