#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "policies/decide/retention/support/attention_statistics.hpp"
#include "tests/policies/decide/retention/retention_driver.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kHeads = 3;
constexpr std::int64_t kWindow = 32;

std::string tailored(std::int64_t budget, const std::string& more = "") {
  return R"({"part": "tailored", "budget_tokens": )" + std::to_string(budget) + more + "}";
}

/// A[head][query][key] of the prompt's last `window` queries, keys before the window.
using Attention = std::vector<std::vector<std::vector<double>>>;

Attention prompt_attention(std::int64_t prompt, std::int64_t heads, std::int64_t window) {
  Attention a(static_cast<std::size_t>(heads));
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t position = prompt - window; position < prompt; ++position) {
      std::vector<Token> tokens(static_cast<std::size_t>(position + 1));
      std::iota(tokens.begin(), tokens.end(), 0);
      const std::vector<float> weights = RetentionDriver::weights(position, head, tokens);
      a[static_cast<std::size_t>(head)].emplace_back(weights.begin(),
                                                     weights.begin() + prompt - window);
    }
  }
  return a;
}

/// Mean over the queries of (a - mean)^power, of one key.
double central_moment(const std::vector<std::vector<double>>& head, std::size_t key, int power) {
  double mean = 0;
  for (const auto& row : head) mean += row[key] / static_cast<double>(head.size());
  double moment = 0;
  for (const auto& row : head) {
    moment += std::pow(row[key] - mean, power) / static_cast<double>(head.size());
  }
  return moment;
}

TEST(AttentionStatistics, FollowTheFormulas) {
  constexpr std::int64_t kPrompt = 90;
  const Attention a = prompt_attention(kPrompt, kHeads, kWindow);
  double entropy = 0;
  double variance = 0;
  double kurtosis = 0;
  for (const auto& head : a) {
    for (const auto& row : head) {
      for (const double x : row) entropy -= x * std::log(x + 1e-10);
    }
    for (std::size_t key = 0; key < kPrompt - kWindow; ++key) {
      const double second = central_moment(head, key, 2);
      variance += second * kWindow / (kWindow - 1);
      kurtosis += central_moment(head, key, 4) / std::pow(std::max(second, 1e-8), 2);
    }
  }
  AttentionWindow window(kHeads, kWindow, kPrompt, kWindow);
  for (std::int64_t position = 0; position < kPrompt; ++position) {
    std::vector<Token> tokens(static_cast<std::size_t>(position + 1));
    std::iota(tokens.begin(), tokens.end(), 0);
    for (std::int64_t head = 0; head < kHeads; ++head) {
      window.take(head, static_cast<Token>(position), tokens,
                  RetentionDriver::weights(position, head, tokens));
    }
  }
  const AttentionStatistics statistics = window.statistics();
  EXPECT_NEAR(statistics.entropy, entropy, 1e-9 * entropy);
  EXPECT_NEAR(statistics.variance, variance, 1e-9 * variance);
  EXPECT_NEAR(statistics.kurtosis, kurtosis, 1e-9 * kurtosis);

  const std::vector<float> scores = window.heavy_hitter_scores(10);
  ASSERT_EQ(scores.size(), static_cast<std::size_t>(kPrompt - kWindow));
  for (std::size_t key = 0; key < scores.size(); ++key) {
    double expected = 0;
    for (const auto& head : a) {
      for (const auto& row : head) expected += row[key] / kWindow / kHeads;
      expected += 10 * central_moment(head, key, 2) * kWindow / (kWindow - 1) / kHeads;
    }
    EXPECT_NEAR(scores[key], expected, 1e-6 * expected);
  }
}

TEST(AttentionStatistics, EqualRowsHaveNoSpread) {
  AttentionWindow window(1, 4, 8, 4);
  const std::vector<Token> tokens{0, 1, 2, 3};
  const std::vector<float> weights{0.25f, 0.25f, 0.25f, 0.25f};
  for (Token position = 4; position < 8; ++position) window.take(0, position, tokens, weights);
  const AttentionStatistics statistics = window.statistics();
  EXPECT_NEAR(statistics.entropy, 4 * std::log(4.0), 1e-8);
  EXPECT_EQ(statistics.variance, 0);
  EXPECT_EQ(statistics.kurtosis, 0);
}

TEST(Tailored, TheLayerScoreIsAProductOfRoots) {
  constexpr std::int64_t kPrompt = 90;
  RetentionDriver driver(
      tailored(64, R"(, "entropy_root": 2, "variance_root": 3, "kurtosis_root": 4)"), kPrompt,
      kHeads);
  ASSERT_TRUE(driver.retention().compares_layers());
  driver.tell_prompt(64);
  AttentionWindow window(kHeads, kWindow, kPrompt, kWindow);
  for (std::int64_t position = kPrompt - kWindow; position < kPrompt; ++position) {
    std::vector<Token> tokens(static_cast<std::size_t>(position + 1));
    std::iota(tokens.begin(), tokens.end(), 0);
    for (std::int64_t head = 0; head < kHeads; ++head) {
      window.take(head, static_cast<Token>(position), tokens,
                  RetentionDriver::weights(position, head, tokens));
    }
  }
  const AttentionStatistics s = window.statistics();
  const double expected =
      std::sqrt(s.entropy) * std::cbrt(s.variance) * std::sqrt(std::sqrt(s.kurtosis));
  EXPECT_NEAR(driver.retention().layer_score(), expected, 1e-12 * expected);
}

/// One step of the tailoring as the source describes it, on one KV head.
struct TailoredReference {
  std::int64_t budget = 0;
  std::int64_t originals = 0;  // O at a tailoring, before the clamp
  std::vector<Token> live;
  std::set<Token> quantised;

  /// Scores, already pooled, of live[0, n - window).
  void tailor(const std::vector<double>& scores) {
    const std::int64_t evictable = std::ssize(live) - kWindow;
    ASSERT_EQ(std::ssize(scores), evictable);
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    const std::int64_t keep = evictable * 3 / 4;
    const std::int64_t best = std::clamp<std::int64_t>(originals, 0, keep);
    std::vector<Token> kept(live.end() - kWindow, live.end());
    std::set<Token> still;
    for (std::int64_t i = 0; i < keep; ++i) {
      const Token token = live[order[static_cast<std::size_t>(i)]];
      kept.push_back(token);
      if (i >= best) still.insert(token);
    }
    std::sort(kept.begin(), kept.end());
    live = kept;
    quantised = still;
  }
};

std::vector<double> pooled5(const std::vector<double>& scores) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < std::ssize(scores); ++i) {
    double sum = 0;
    for (std::int64_t j = std::max<std::int64_t>(0, i - 2);
         j <= std::min<std::int64_t>(i + 2, std::ssize(scores) - 1); ++j) {
      sum += scores[static_cast<std::size_t>(j)];
    }
    result.push_back(sum / 5);
  }
  return result;
}

TEST(Tailored, AgreesWithAReference) {
  constexpr Token kPrompt = 200;
  constexpr std::int64_t kBudget = 96;
  constexpr double kRatio = 0.5;
  RetentionDriver driver(tailored(kBudget), kPrompt, kHeads, kRatio);
  driver.prompt(64);

  TailoredReference reference;
  reference.budget = kBudget;
  reference.originals = 32;  // round(0.5 * (96 - 32))
  const Attention a = prompt_attention(kPrompt, kHeads, kWindow);
  std::vector<double> scores(kPrompt - kWindow);
  for (std::size_t key = 0; key < scores.size(); ++key) {
    for (const auto& head : a) {
      for (const auto& row : head) scores[key] += row[key] / kWindow / kHeads;
      scores[key] +=
          263.8108280337562 * central_moment(head, key, 2) * kWindow / (kWindow - 1) / kHeads;
    }
  }
  scores = pooled5(scores);
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t x, std::size_t y) { return scores[x] > scores[y]; });
  for (std::size_t i = 0; i < kBudget - kWindow; ++i) {
    reference.live.push_back(static_cast<Token>(order[i]));
  }
  for (Token token = kPrompt - kWindow; token < kPrompt; ++token) reference.live.push_back(token);
  std::sort(reference.live.begin(), reference.live.end());
  ASSERT_EQ(driver.live(), reference.live);
  EXPECT_TRUE(driver.quantised().empty()) << "nothing is quantised at prefill";

  int tailorings = 0;
  for (Token token = kPrompt; token < kPrompt + 60; ++token) {
    reference.live.push_back(token);
    if (std::ssize(reference.live) > kBudget) {
      std::vector<double> newest(reference.live.size() - kWindow);
      for (std::int64_t head = 0; head < kHeads; ++head) {
        const auto weights = RetentionDriver::weights(token, head, reference.live);
        for (std::size_t i = 0; i < newest.size(); ++i) newest[i] += weights[i] / double{kHeads};
      }
      reference.tailor(pooled5(newest));
      ++tailorings;
    }
    driver.step();
    ASSERT_EQ(driver.live(), reference.live) << "token " << token;
    ASSERT_EQ(driver.quantised(), reference.quantised) << "token " << token;
    ASSERT_LE(std::ssize(driver.live()), kBudget);
  }
  EXPECT_GE(tailorings, 3);
}

TEST(Tailored, TailorsEveryQuarterOfTheBudget) {
  for (const auto& [budget, interval] : {std::pair{512, 121}, {1024, 249}, {2048, 505}}) {
    const Token prompt = static_cast<Token>(budget + 40);
    RetentionDriver driver(tailored(budget), prompt, 1);
    driver.prompt(40);
    ASSERT_EQ(std::ssize(driver.live()), budget);
    std::vector<int> at;
    std::int64_t before = budget;
    for (int step = 0; at.size() < 2; ++step) {
      driver.step();
      const std::int64_t now = std::ssize(driver.live());
      ASSERT_LE(now, budget);
      if (now < before) at.push_back(step);
      before = now;
    }
    EXPECT_EQ(at[0], 0) << "the first step exceeds a full budget";
    EXPECT_EQ(at[1] - at[0], interval) << "budget " << budget;
  }
}

TEST(Tailored, QuantisesWhatTheRatioLeavesWithTheCodesSecondSubtraction) {
  const auto quantised = [](std::int64_t budget, double ratio) {
    RetentionDriver driver(tailored(budget, R"(, "subtract_window_twice": true)"),
                           static_cast<Token>(budget + 40), 1, ratio);
    driver.prompt(40);
    driver.step();
    return std::ssize(driver.quantised());
  };
  EXPECT_EQ(quantised(512, 0.82), 0);
  EXPECT_EQ(quantised(512, 0.8), 8);
  EXPECT_EQ(quantised(512, 0.7), 56);
  EXPECT_EQ(quantised(512, 0.5), 152);
  EXPECT_EQ(quantised(2048, 0.77), 0);
}

TEST(Tailored, ALayerWithTheFullRatioQuantisesNothing) {
  RetentionDriver driver(tailored(64), 100, kHeads, 1.0);
  driver.prompt(40);
  for (int i = 0; i < 40; ++i) driver.step();
  EXPECT_TRUE(driver.quantised().empty());
}

TEST(Tailored, TheBaselinesOfTheSource) {
  const auto run = [](const std::string& mode) {
    auto driver = std::make_unique<RetentionDriver>(tailored(64, ", \"mode\": \"" + mode + "\""),
                                                    100, kHeads, 0.3);
    driver->prompt(40);
    return driver;
  };
  const auto original = run("original");
  EXPECT_FALSE(original->retention().reencodes());
  EXPECT_EQ(original->live().size(), 64u);
  original->step();
  EXPECT_EQ(original->live().size(), 32u + (65u - 32u) * 3 / 4);
  EXPECT_TRUE(original->quantised().empty());

  const auto quantised = run("quantised");
  EXPECT_TRUE(quantised->retention().reencodes());
  EXPECT_EQ(quantised->live(), run("original")->live());
  EXPECT_EQ(quantised->quantised().size(), 32u);
  quantised->step();
  EXPECT_EQ(quantised->live(), original->live());
  EXPECT_EQ(quantised->quantised().size(), (65u - 32u) * 3 / 4);
  EXPECT_LT(*quantised->quantised().rbegin(), quantised->live()[quantised->live().size() - 32]);

  const auto window = run("window");
  EXPECT_FALSE(window->retention().needs_attention());
  EXPECT_EQ(window->live().size(), 32u);
  EXPECT_EQ(window->live().front(), 68);
}

TEST(Tailored, LeavesAPromptWithinTheBudgetAlone) {
  RetentionDriver driver(tailored(64), 20, kHeads, 0.5);
  driver.prompt(20);
  EXPECT_EQ(driver.events(), 0);
  for (int i = 0; i < 44; ++i) driver.step();
  EXPECT_EQ(driver.events(), 0);
  driver.step();
  EXPECT_EQ(driver.live().size(), 32u + (65u - 32u) * 3 / 4);
}

}  // namespace
}  // namespace kvreplay
