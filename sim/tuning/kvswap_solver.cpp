#include "sim/tuning/kvswap_solver.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace kvreplay {
namespace {

/// Slots of the reuse buffer, where `raised` counts how often sigma was raised from the first one
/// that fits. None where the budget does not leave room for the minimum.
std::optional<std::int64_t> capacity(const KvSwapProblem& problem, std::int64_t sigma,
                                     std::int64_t group_tokens, std::int64_t context_tokens,
                                     std::int64_t raised) {
  const std::int64_t rest =
      problem.budget_bytes - kvswap_memory_bytes(problem, {sigma, group_tokens, 0}, context_tokens);
  const std::int64_t group_bytes = group_tokens * problem.entry_bytes * problem.layers;
  const std::int64_t min_tokens = problem.min_reuse_tokens();
  const std::int64_t fits = rest / group_bytes;
  if (rest < 0 || fits * group_tokens < min_tokens) return std::nullopt;
  std::int64_t tokens = std::min(fits * group_tokens, context_tokens);
  if (problem.delta_tokens > 0) {
    tokens = std::min(tokens, min_tokens + raised * problem.delta_tokens);
  }
  // Whole groups that hold at least that many tokens, where they fit.
  return std::min((tokens + group_tokens - 1) / group_tokens, fits);
}

double distance(const KvSwapSolution& solution, std::int64_t batch, std::int64_t context_tokens) {
  const auto ratio = [](std::int64_t a, std::int64_t b) {
    return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
  };
  return ratio(solution.batch, batch) + ratio(solution.context_tokens, context_tokens);
}

}  // namespace

std::int64_t kvswap_memory_bytes(const KvSwapProblem& problem, const KvSwapSetting& setting,
                                 std::int64_t context_tokens) {
  const std::int64_t rank = std::max<std::int64_t>(1, problem.width / setting.sigma);
  const std::int64_t keys = context_tokens * rank * 2;
  const std::int64_t rolling = setting.group_tokens * problem.entry_bytes;
  const std::int64_t reuse = setting.capacity_groups * setting.group_tokens * problem.entry_bytes;
  const std::int64_t read_buffers =
      problem.read_buffers * problem.selected_tokens * problem.entry_bytes;
  return (keys + reuse + rolling) * problem.layers + read_buffers;
}

std::optional<KvSwapSolution> solve_kvswap(const KvSwapProblem& problem, std::int64_t batch,
                                           std::int64_t context_tokens,
                                           const KvSwapMeasure& measure) {
  std::optional<KvSwapSolution> fastest;
  std::int64_t raised = 0;
  for (const std::int64_t sigma : problem.sigmas) {
    bool fits = false;
    for (const std::int64_t group_tokens : problem.group_sizes) {
      const auto groups = capacity(problem, sigma, group_tokens, context_tokens, raised);
      if (!groups) continue;
      fits = true;
      KvSwapSolution tried{batch, context_tokens, {sigma, group_tokens, *groups}, 0, {}, false};
      tried.memory_bytes = kvswap_memory_bytes(problem, tried.setting, context_tokens);
      tried.measured = measure(tried.setting, batch, context_tokens);
      tried.hidden = tried.measured.hidden_share() >= 1 - problem.alpha;
      if (tried.hidden) return tried;
      if (!fastest || tried.measured.latency_ms < fastest->measured.latency_ms) fastest = tried;
    }
    if (fits) ++raised;
  }
  return fastest;
}

std::int64_t longest_context(const KvSwapProblem& problem, const KvSwapSetting& setting) {
  const std::int64_t fixed = kvswap_memory_bytes(problem, setting, 0);
  const std::int64_t a_token = kvswap_memory_bytes(problem, setting, 1) - fixed;
  return std::max<std::int64_t>(0, (problem.budget_bytes - fixed) / a_token);
}

const KvSwapSolution* nearest_solution(const KvSwapProblem& problem,
                                       std::span<const KvSwapSolution> solutions,
                                       std::int64_t batch, std::int64_t context_tokens) {
  const auto order = [&](const KvSwapSolution& solution) {
    return std::tuple(distance(solution, batch, context_tokens), -solution.context_tokens,
                      -solution.batch);
  };
  const KvSwapSolution* nearest = nullptr;
  for (const KvSwapSolution& solution : solutions) {
    if (longest_context(problem, solution.setting) < context_tokens) continue;
    if (nearest == nullptr || order(solution) < order(*nearest)) nearest = &solution;
  }
  return nearest;
}

}  // namespace kvreplay
