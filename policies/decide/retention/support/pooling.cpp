#include "policies/decide/retention/support/pooling.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {

void check_window_and_pool(const Arguments& arguments, const std::string& budget) {
  const std::int64_t window = arguments.integer("window_tokens");
  if (window >= arguments.integer(budget)) {
    throw UserError(arguments.place("window_tokens"), std::to_string(window),
                    "less than " + budget + " " + std::to_string(arguments.integer(budget)));
  }
  const std::int64_t neighbours = arguments.integer("pool_tokens");
  if (neighbours % 2 == 0) {
    throw UserError(arguments.place("pool_tokens"), std::to_string(neighbours), "an odd number");
  }
}

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
