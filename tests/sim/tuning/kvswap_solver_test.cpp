#include "sim/tuning/kvswap_solver.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/random.hpp"

namespace kvreplay {
namespace {

/// Llama 3.1 8B: 32 layers, 8 KV heads of 128.
KvSwapProblem llama() {
  KvSwapProblem problem;
  problem.layers = 32;
  problem.width = 1024;
  problem.entry_bytes = 4096;
  problem.selected_tokens = 400;
  problem.budget_bytes = std::int64_t{310} << 20;
  problem.sigmas = {4, 8, 16, 32};
  problem.group_sizes = {1, 2, 4, 8};
  return problem;
}

TEST(KvSwapSolver, MemoryByHand) {
  const KvSwapProblem problem = llama();
  // 32K tokens x 32 columns x 2 bytes = 2 MiB of keys per layer; 480 groups of 4 tokens of 4 KiB =
  // 7.5 MiB; a rolling group of 16 KiB; all of it 32 times; and twice 400 entries of 4 KiB.
  const std::int64_t kib = 1024;
  EXPECT_EQ(kvswap_memory_bytes(problem, {32, 4, 480}, 32768),
            (2048 * kib + 7680 * kib + 16 * kib) * 32 + 3200 * kib);
  // No buffer, one column at least.
  EXPECT_EQ(kvswap_memory_bytes(problem, {4096, 1, 0}, 10), (20 + 4096) * 32 + 3200 * kib);
}

/// A small machine, with random results for each setting: what is hidden and how long it takes.
class Table {
 public:
  explicit Table(std::uint64_t seed) : seed_(seed) {}
  KvSwapMeasured operator()(const KvSwapSetting& setting, std::int64_t batch,
                            std::int64_t context) const {
    Random random(Random::derive(
        seed_, static_cast<std::uint64_t>(
                   ((setting.sigma * 64 + setting.group_tokens) * 64 + batch) * 65536 + context +
                   setting.capacity_groups)));
    KvSwapMeasured measured;
    measured.latency_ms = 1 + static_cast<double>(random.below(1000));
    measured.io_ms = 10;
    measured.exposed_io_ms = static_cast<double>(random.below(11));
    return measured;
  }

 private:
  std::uint64_t seed_;
};

/// Every setting that fits, in the order of sigma and G: the first that hides enough, or else the
/// fastest. The capacity is found by trying one slot after the other.
std::optional<KvSwapSolution> exhaustive(const KvSwapProblem& problem, std::int64_t batch,
                                         std::int64_t context, const Table& table) {
  std::map<std::pair<std::int64_t, std::int64_t>, KvSwapSolution> fitting;
  for (const std::int64_t sigma : problem.sigmas) {
    for (const std::int64_t group : problem.group_sizes) {
      std::int64_t slots = -1;
      for (std::int64_t c = 0;; ++c) {
        const bool fits =
            kvswap_memory_bytes(problem, {sigma, group, c}, context) <= problem.budget_bytes;
        const bool useful = c == 0 || (c - 1) * group < context;
        if (!fits || !useful) break;
        slots = c;
      }
      const bool holds_the_minimum =
          slots >= 0 &&
          kvswap_memory_bytes(problem,
                              {sigma, group, (problem.min_reuse_tokens() + group - 1) / group},
                              context) <= problem.budget_bytes;
      if (!holds_the_minimum) continue;
      fitting[{sigma, group}] = {batch, context, {sigma, group, slots}, 0, {}, false};
    }
  }
  std::optional<KvSwapSolution> fastest;
  for (auto& [key, solution] : fitting) {
    solution.measured = table(solution.setting, batch, context);
    solution.hidden = solution.measured.exposed_io_ms <= problem.alpha * solution.measured.io_ms;
    if (solution.hidden) return solution;
    if (!fastest || solution.measured.latency_ms < fastest->measured.latency_ms) {
      fastest = solution;
    }
  }
  return fastest;
}

TEST(KvSwapSolver, FindsWhatTryingEverythingFinds) {
  Random random(7);
  int solved = 0;
  int hidden = 0;
  int none = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    KvSwapProblem problem;
    problem.layers = 1 + static_cast<std::int64_t>(random.below(4));
    problem.width = 64;
    problem.entry_bytes = 256;
    problem.selected_tokens = 8;
    problem.budget_bytes = 1 + static_cast<std::int64_t>(random.below(200000));
    problem.sigmas = {2, 4, 8};
    problem.group_sizes = {1, 2, 4};
    problem.alpha = 0.1;
    const auto batch = static_cast<std::int64_t>(1 + random.below(4));
    const auto context = static_cast<std::int64_t>(16 + random.below(400));
    const Table table(seed);
    const auto expected = exhaustive(problem, batch, context, table);
    const auto found = solve_kvswap(problem, batch, context, table);
    ASSERT_EQ(found.has_value(), expected.has_value()) << seed;
    none += found ? 0 : 1;
    if (!found) continue;
    ++solved;
    hidden += found->hidden ? 1 : 0;
    EXPECT_EQ(found->setting, expected->setting) << seed;
    EXPECT_EQ(found->hidden, expected->hidden) << seed;
    EXPECT_LE(found->memory_bytes, problem.budget_bytes);
    EXPECT_EQ(found->memory_bytes, kvswap_memory_bytes(problem, found->setting, context));
  }
  // The draws reach every outcome.
  EXPECT_GT(none, 20);
  EXPECT_GT(hidden, 20);
  EXPECT_GT(solved - hidden, 20);
}

/// Settings in the order in which they were tried, none of which hides anything.
std::vector<KvSwapSetting> tried(const KvSwapProblem& problem, std::int64_t context) {
  std::vector<KvSwapSetting> settings;
  static_cast<void>(solve_kvswap(problem, 1, context,
                                 [&](const KvSwapSetting& setting, std::int64_t, std::int64_t) {
                                   settings.push_back(setting);
                                   return KvSwapMeasured{.io_ms = 1, .exposed_io_ms = 1};
                                 }));
  return settings;
}

TEST(KvSwapSolver, RaisingSigmaMovesMemoryToTheBuffer) {
  KvSwapProblem problem = llama();
  problem.budget_bytes = std::int64_t{311} << 20;
  const std::vector<KvSwapSetting> all = tried(problem, 16384);
  ASSERT_EQ(all.size(), 4 * 4);
  // 16K x 128 columns at sigma 8 are 4 MiB per layer; half of it goes to 512 more entries.
  EXPECT_EQ(all[4].sigma, 8);
  EXPECT_EQ(all[8].sigma, 16);
  EXPECT_EQ(all[8].capacity_groups - all[4].capacity_groups, 16384 * 64 * 2 / 4096);
  // With a fixed delta, the buffer grows by that many tokens instead.
  problem.delta_tokens = 100;
  const std::vector<KvSwapSetting> fixed = tried(problem, 16384);
  EXPECT_EQ(fixed[0], (KvSwapSetting{4, 1, 400}));
  EXPECT_EQ(fixed[4], (KvSwapSetting{8, 1, 500}));
  EXPECT_EQ(fixed[5], (KvSwapSetting{8, 2, 250}));
}

TEST(KvSwapSolver, SkipsWhatDoesNotFit) {
  KvSwapProblem problem = llama();
  problem.budget_bytes = std::int64_t{120} << 20;
  // At 32K, sigma 8 alone takes 256 MiB, sigma 16 128 MiB, sigma 32 64 MiB.
  const std::vector<KvSwapSetting> all = tried(problem, 32768);
  ASSERT_FALSE(all.empty());
  for (const KvSwapSetting& setting : all) EXPECT_EQ(setting.sigma, 32);
  EXPECT_FALSE(solve_kvswap(problem, 1, 131072, Table(1)).has_value());
}

TEST(KvSwapSolver, NothingToHideIsHidden) {
  const auto solution =
      solve_kvswap(llama(), 1, 16384, [](const KvSwapSetting&, std::int64_t, std::int64_t) {
        return KvSwapMeasured{.latency_ms = 1};
      });
  ASSERT_TRUE(solution);
  EXPECT_TRUE(solution->hidden);
  EXPECT_EQ(solution->setting.group_tokens, 1);
  EXPECT_EQ(solution->setting.sigma, 4);
}

TEST(KvSwapSolver, LongestContextByTryingEach) {
  KvSwapProblem problem = llama();
  problem.budget_bytes = std::int64_t{40} << 20;
  const KvSwapSetting setting{8, 2, 100};
  std::int64_t longest = 0;
  while (kvswap_memory_bytes(problem, setting, longest + 1) <= problem.budget_bytes) ++longest;
  EXPECT_GT(longest, 0);
  EXPECT_EQ(longest_context(problem, setting), longest);
  EXPECT_EQ(longest_context(problem, {8, 2, 100000}), 0);
}

TEST(KvSwapSolver, NearestOfThoseThatFit) {
  const KvSwapProblem problem = llama();
  // The first takes the whole budget at 4K; the second leaves room up to 16K.
  const KvSwapSolution full{2, 4096, {4, 1, 1900}, 0, {}, false};
  const KvSwapSolution longer{1, 16384, {8, 1, 400}, 0, {}, false};
  const std::vector<KvSwapSolution> solutions{full, longer};
  EXPECT_EQ(nearest_solution(problem, solutions, 2, 4096), &solutions[0]);
  EXPECT_EQ(nearest_solution(problem, solutions, 2, 6000), &solutions[1]);
  EXPECT_EQ(nearest_solution(problem, solutions, 2, 1 << 20), nullptr);
}

TEST(KvSwapSolver, ExactMatchElseTheNearest) {
  std::vector<KvSwapSolution> solutions;
  for (const std::int64_t batch : {1, 2, 4}) {
    for (const std::int64_t context : {4096, 8192, 16384}) {
      solutions.push_back({batch, context, {32, 1, 400}, 0, {}, false});
    }
  }
  const auto nearest = [&](std::int64_t batch, std::int64_t context) {
    const KvSwapSolution* solution = nearest_solution(llama(), solutions, batch, context);
    return std::pair(solution->batch, solution->context_tokens);
  };
  for (const KvSwapSolution& solution : solutions) {
    EXPECT_EQ(nearest(solution.batch, solution.context_tokens),
              std::pair(solution.batch, solution.context_tokens));
  }
  EXPECT_EQ(nearest(3, 13000), std::pair(std::int64_t{4}, std::int64_t{16384}));
  EXPECT_EQ(nearest(64, 1), std::pair(std::int64_t{4}, std::int64_t{4096}));
}

}  // namespace
}  // namespace kvreplay
