#include "policies/decide/retention/retention.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "policies/decide/retention/support/live_tokens.hpp"
#include "policies/decide/retention/support/pooling.hpp"
#include "tests/policies/decide/retention/retention_driver.hpp"

namespace kvreplay {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Pointwise;

std::vector<Token> range(Token begin, Token end) {
  std::vector<Token> tokens(static_cast<std::size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

/// The `count` best of `candidates` by `score`, ties to the lower token, and `rest`; ascending.
std::vector<Token> best(std::vector<Token> candidates, const std::map<Token, double>& score,
                        std::int64_t count, const std::vector<Token>& rest) {
  std::stable_sort(candidates.begin(), candidates.end(), [&](Token a, Token b) {
    return static_cast<float>(score.at(a)) > static_cast<float>(score.at(b));
  });
  candidates.resize(std::min(candidates.size(), static_cast<std::size_t>(count)));
  candidates.insert(candidates.end(), rest.begin(), rest.end());
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

TEST(LiveTokens, EvictsEachGroupsTokensInOneEvent) {
  class Recorder final : public EventSink {
   public:
    explicit Recorder(Groups& groups) : groups_(groups) {}
    void on_event(const GroupEvent& event) override {
      groups_.on_event(event);
      evicted.emplace_back(event.group,
                           std::vector<Token>(event.tokens.begin(), event.tokens.end()));
    }
    std::vector<std::pair<GroupId, std::vector<Token>>> evicted;

   private:
    Groups& groups_;
  };
  Groups groups;
  groups.on_event({EventKind::kCreated, 0, kNoGroup, std::vector<Token>{0, 3}});
  groups.on_event({EventKind::kCreated, 1, kNoGroup, std::vector<Token>{1, 4, 5}});
  groups.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, std::vector<Token>{2, 6}});
  LiveTokens live;
  live.start(7);
  Recorder recorder(groups);
  live.keep_only(std::vector<std::int32_t>{0, 4}, groups, recorder);
  EXPECT_THAT(live.tokens(), ElementsAre(0, 4));
  EXPECT_THAT(recorder.evicted, ElementsAre(std::pair(kNoGroup, std::vector<Token>{2, 6}),
                                            std::pair(0, std::vector<Token>{3}),
                                            std::pair(1, std::vector<Token>{1, 5})));
}

TEST(Pooling, CountsZerosBeyondTheEndsInTheMeanOnly) {
  const std::vector<float> scores{3, 0, 6, -3, -9};
  EXPECT_THAT(pooled(scores, 3, Pool::kMean), Pointwise(FloatEq(), {1.f, 3.f, 1.f, -2.f, -4.f}));
  EXPECT_THAT(pooled(scores, 3, Pool::kMaximum), ElementsAre(3, 6, 6, 6, -3));
  EXPECT_EQ(pooled(scores, 1, Pool::kMean), scores);
}

TEST(SinksAndWindow, KeepsTheFirstAndTheLast) {
  for (const Token prompt : {3, 10, 40}) {
    RetentionDriver driver(R"({"part": "sinks_and_window", "sink_tokens": 4, "window_tokens": 8})",
                           prompt, 1);
    driver.prompt(1);
    for (Token n = prompt; n < prompt + 30; ++n) {
      std::vector<Token> expected = range(0, std::min<Token>(n, 4));
      for (Token token = std::max<Token>(4, n - 8); token < n; ++token) expected.push_back(token);
      ASSERT_EQ(driver.live(), expected) << n << " tokens";
      driver.step();
    }
  }
}

TEST(HeavyHitters, AgreesWithAReferenceThatSumsEveryRow) {
  constexpr Token kPrompt = 60;
  constexpr std::int64_t kHeads = 3;
  constexpr std::int64_t kHeavy = 12;
  constexpr std::int64_t kRecent = 6;
  RetentionDriver driver(R"({"part": "heavy_hitters", "heavy_share": 0.2, "recent_share": 0.1})",
                         kPrompt, kHeads);
  driver.prompt(16);

  std::map<Token, double> sums;
  for (Token token = 0; token < kPrompt; ++token) sums[token] = 0;
  const auto add = [&](Token position, const std::vector<Token>& tokens) {
    for (std::int64_t head = 0; head < kHeads; ++head) {
      const std::vector<float> weights = RetentionDriver::weights(position, head, tokens);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        sums[tokens[i]] += static_cast<double>(weights[i]) / kHeads;
      }
    }
  };
  for (Token position = kPrompt - 16; position < kPrompt; ++position) {
    add(position, range(0, position + 1));
  }
  std::vector<Token> live = range(0, kPrompt);
  for (Token n = kPrompt; n < kPrompt + 50; ++n) {
    const auto recent = live.end() - kRecent;
    live = best({live.begin(), recent}, sums, kHeavy, {recent, live.end()});
    ASSERT_EQ(driver.live(), live) << n << " tokens";
    ASSERT_EQ(std::ssize(live), kHeavy + kRecent);
    live.push_back(n);
    add(n, live);
    driver.step();
  }
}

TEST(HeavyHitters, AFullShareEvictsNothing) {
  RetentionDriver driver(R"({"part": "heavy_hitters", "heavy_share": 0.5, "recent_share": 0.5})",
                         20, 2);
  driver.prompt(8);
  EXPECT_EQ(driver.live(), range(0, 20));
}

TEST(AtPrefill, AgreesWithAReferenceAndNeverEvictsLater) {
  constexpr Token kPrompt = 80;
  constexpr std::int64_t kHeads = 3;
  for (const char* pool : {"mean", "maximum"}) {
    RetentionDriver driver(R"({"part": "at_prefill", "capacity_tokens": 30, "window_tokens": 8,
                              "pool_tokens": 5, "pool": ")" +
                               std::string(pool) + "\"}",
                           kPrompt, kHeads);
    driver.prompt(16);

    std::vector<double> sums(kPrompt - 8);
    for (Token position = kPrompt - 8; position < kPrompt; ++position) {
      for (std::int64_t head = 0; head < kHeads; ++head) {
        const auto weights = RetentionDriver::weights(position, head, range(0, position + 1));
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += weights[i];
      }
    }
    std::map<Token, double> score;
    for (Token i = 0; i < kPrompt - 8; ++i) {
      double mean = 0;
      double maximum = 0;
      for (Token j = std::max(0, i - 2); j <= std::min(kPrompt - 9, i + 2); ++j) {
        mean += sums[static_cast<std::size_t>(j)] / 5;
        maximum = std::max(maximum, sums[static_cast<std::size_t>(j)]);
      }
      score[i] = std::string(pool) == "mean" ? mean : maximum;
    }
    // Sums in another order differ in their last bits, so the scores of the kept tokens are
    // compared.
    const std::vector<Token> expected =
        best(range(0, kPrompt - 8), score, 22, range(kPrompt - 8, kPrompt));
    const std::vector<Token> live = driver.live();
    ASSERT_EQ(live.size(), 30u);
    double kept = 0;
    double best_kept = 0;
    for (std::size_t i = 0; i < 22; ++i) {
      kept += score.at(live[i]);
      best_kept += score.at(expected[i]);
    }
    EXPECT_NEAR(kept, best_kept, 1e-5);
    EXPECT_TRUE(std::equal(live.end() - 8, live.end(), expected.end() - 8));

    for (int i = 0; i < 20; ++i) driver.step();
    EXPECT_EQ(driver.live().size(), 50u);
  }
}

TEST(AtPrefill, LeavesAShortPromptAlone) {
  RetentionDriver driver(R"({"part": "at_prefill", "capacity_tokens": 30, "window_tokens": 8})", 30,
                         1);
  driver.prompt(16);
  EXPECT_EQ(driver.events(), 0);
}

std::string error_of(const std::string& part) {
  try {
    RetentionDriver driver(part, 10, 1);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Retention, RefusesParametersThatDoNotFit) {
  EXPECT_THAT(error_of(R"({"part": "at_prefill", "capacity_tokens": 8, "window_tokens": 8})"),
              HasSubstr("window_tokens"));
  EXPECT_THAT(error_of(R"({"part": "at_prefill", "pool_tokens": 4})"), HasSubstr("pool_tokens"));
  EXPECT_THAT(error_of(R"({"part": "tailored", "budget_tokens": 16, "window_tokens": 32})"),
              HasSubstr("window_tokens"));
}

TEST(Retention, TheSameRunTwiceLeavesTheSame) {
  for (const char* part :
       {R"({"part": "sinks_and_window", "window_tokens": 20})", R"({"part": "heavy_hitters"})",
        R"({"part": "at_prefill", "capacity_tokens": 40})",
        R"({"part": "tailored", "budget_tokens": 50})"}) {
    RetentionDriver first(part, 100, 3, 0.5);
    RetentionDriver second(part, 100, 3, 0.5);
    for (RetentionDriver* driver : {&first, &second}) {
      driver->prompt(40);
      for (int i = 0; i < 30; ++i) driver->step();
    }
    EXPECT_LT(first.live().size(), 130u) << part << " did nothing";
    EXPECT_EQ(first.live(), second.live()) << part;
    EXPECT_EQ(first.quantised(), second.quantised()) << part;
  }
}

}  // namespace
}  // namespace kvreplay
