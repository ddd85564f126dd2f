#include "policies/decide/scoring/scoring.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/scored_groups.hpp"

namespace kvreplay {
namespace {

using ::testing::HasSubstr;

constexpr double kNoScore = -std::numeric_limits<double>::infinity();

class ScoringTest : public ::testing::Test {
 protected:
  using GroupScore = std::function<double(std::int64_t head, GroupId group)>;

  /// Each head's score of each group, as the part should give it.
  void expect_per_head(const Scores& scores, const Groups& groups, const GroupScore& expected) {
    ASSERT_EQ(scores.rows, 6);
    ASSERT_EQ(scores.groups, groups.count());
    for (std::int64_t head = 0; head < 6; ++head) {
      for (GroupId group = 0; group < groups.count(); ++group) {
        const double found = scores.row(head)[static_cast<std::size_t>(group)];
        if (!groups.live(group)) {
          EXPECT_EQ(found, kNoScore);
        } else {
          EXPECT_NEAR(found, expected(head, group), 1e-3) << head << " " << group;
        }
      }
    }
  }
  [[nodiscard]] double key(std::int64_t head, Token token, std::int64_t i) const {
    return static_cast<double>(to_float(layer_.entries(40).keys.row(head / 3, token)[i]));
  }
  [[nodiscard]] double query(std::int64_t head, std::int64_t i) const {
    return static_cast<double>(layer_.query(40)[static_cast<std::size_t>(head * 16 + i)]);
  }
  /// Softmax over the tokens that are in groups.
  [[nodiscard]] double softmax(const Groups& groups, std::int64_t head, Token token) const {
    const double scale = static_cast<double>(layer_.shape.softmax_scale);
    double total = 0;
    for (Token t = 0; t < 40; ++t) {
      if (groups.group_of(t) != kNoGroup) total += std::exp(scale * layer_.logit(head, 40, t));
    }
    return std::exp(scale * layer_.logit(head, 40, token)) / total;
  }

  RandomLayer layer_{40, 8};
};

TEST_F(ScoringTest, ExactIsTheBestLogitOfTheGroup) {
  ScoredGroups scored(R"({"part": "exact"})", layer_);
  scored.create_varied();
  expect_per_head(scored.score(), scored.groups, [&](std::int64_t head, GroupId group) {
    double best = kNoScore;
    for (const Token token : scored.groups.members(group)) {
      best = std::max(best, layer_.logit(head, 40, token));
    }
    return best;
  });
  EXPECT_EQ(scored.cost().read_bytes, 40 * 2 * 16 * 2);
  EXPECT_EQ(scored.cost().flops, 40 * 6 * 16 * 2);
}

TEST_F(ScoringTest, CentroidIsTheMeanOfTheMembersThatAreLeft) {
  ScoredGroups scored(R"({"part": "centroid"})", layer_);
  scored.create_varied();
  expect_per_head(scored.score(), scored.groups, [&](std::int64_t head, GroupId group) {
    double sum = 0;
    for (const Token token : scored.groups.members(group)) sum += layer_.logit(head, 40, token);
    return sum / static_cast<double>(scored.groups.members(group).size());
  });
  // 4 live groups, 2 KV heads, 16 elements of 2 bytes.
  EXPECT_EQ(scored.cost().held_bytes, 4 * 2 * 16 * 2);
  EXPECT_EQ(scored.cost().flops, 4 * 6 * 16 * 2);
}

TEST_F(ScoringTest, MinMaxBoundsEveryMember) {
  ScoredGroups scored(R"({"part": "min_max"})", layer_);
  scored.create_varied();
  const Scores scores = scored.score();
  expect_per_head(scores, scored.groups, [&](std::int64_t head, GroupId group) {
    double sum = 0;
    for (std::int64_t i = 0; i < 16; ++i) {
      double low = 1e9;
      double high = -1e9;
      for (const Token token : scored.groups.members(group)) {
        low = std::min(low, key(head, token, i));
        high = std::max(high, key(head, token, i));
      }
      sum += std::max(query(head, i) * low, query(head, i) * high);
    }
    return sum;
  });
  for (GroupId group = 0; group < scored.groups.count(); ++group) {
    for (const Token token : scored.groups.members(group)) {
      EXPECT_LE(layer_.logit(4, 40, token), scores.row(4)[static_cast<std::size_t>(group)] + 1e-3F);
    }
  }
  EXPECT_EQ(scored.cost().held_bytes, 4 * 2 * 16 * 2 * 2);
}

TEST_F(ScoringTest, AllScoresAreEqual) {
  ScoredGroups scored(R"({"part": "all"})", layer_);
  scored.create_varied();
  const Scores scores = scored.score();
  ASSERT_EQ(scores.rows, 1);
  for (GroupId group = 0; group < scored.groups.count(); ++group) {
    EXPECT_EQ(scores.row(0)[static_cast<std::size_t>(group)],
              scored.groups.live(group) ? 0 : -std::numeric_limits<float>::infinity());
  }
}

TEST_F(ScoringTest, HeadRulesOverTokensThenTheBestOfTheGroup) {
  using Rule = std::function<double(const Groups&, Token)>;
  const auto over_heads = [&](Token token, const auto& value, bool takes_max) {
    double joined = takes_max ? kNoScore : 0;
    for (std::int64_t head = 0; head < 6; ++head) {
      joined = takes_max ? std::max(joined, value(head, token)) : joined + value(head, token);
    }
    return joined;
  };
  const auto logit = [&](std::int64_t head, Token token) { return layer_.logit(head, 40, token); };
  const std::vector<std::pair<const char*, Rule>> rules{
      {"mean", [&](const Groups&, Token t) { return over_heads(t, logit, false) / 6; }},
      {"max", [&](const Groups&, Token t) { return over_heads(t, logit, true); }},
      {"sum_softmax",
       [&](const Groups& groups, Token token) {
         return over_heads(
             token, [&](std::int64_t h, Token t) { return softmax(groups, h, t); }, false);
       }},
      {"max_softmax", [&](const Groups& groups, Token token) {
         return over_heads(
             token, [&](std::int64_t h, Token t) { return softmax(groups, h, t); }, true);
       }}};
  for (const auto& [name, rule] : rules) {
    ScoredGroups scored(R"({"part": "exact", "heads": ")" + std::string(name) + "\"}", layer_);
    scored.create_varied();
    const Scores scores = scored.score();
    ASSERT_EQ(scores.rows, 1);
    for (GroupId group = 0; group < scored.groups.count(); ++group) {
      double best = kNoScore;
      for (const Token token : scored.groups.members(group)) {
        best = std::max(best, rule(scored.groups, token));
      }
      const double found = scores.row(0)[static_cast<std::size_t>(group)];
      if (best == kNoScore) {
        EXPECT_EQ(found, kNoScore);
      } else {
        EXPECT_NEAR(found, best, 1e-4) << name << " " << group;
      }
    }
  }
}

TEST_F(ScoringTest, SoftmaxOverGroupsLeavesDeadGroupsOut) {
  ScoredGroups per_head(R"({"part": "centroid"})", layer_);
  ScoredGroups joined(R"({"part": "centroid", "heads": "max_softmax"})", layer_);
  per_head.create_varied();
  joined.create_varied();
  const Scores each = per_head.score();
  const Scores one = joined.score();
  ASSERT_EQ(one.rows, 1);
  for (GroupId group = 0; group < joined.groups.count(); ++group) {
    double best = kNoScore;
    for (std::int64_t head = 0; head < 6; ++head) {
      const double scale = static_cast<double>(layer_.shape.softmax_scale);
      double total = 0;
      for (const float score : each.row(head))
        total += std::exp(scale * static_cast<double>(score));
      const double own = each.row(head)[static_cast<std::size_t>(group)];
      best = std::max(best, std::exp(scale * own) / total);
    }
    const double found = one.row(0)[static_cast<std::size_t>(group)];
    if (joined.groups.live(group)) {
      EXPECT_NEAR(found, best, 1e-4);
    } else {
      EXPECT_EQ(found, kNoScore);
    }
  }
}

TEST_F(ScoringTest, NoGroupsYetIsNoTrouble) {
  for (const char* json :
       {R"({"part": "exact"})", R"({"part": "exact", "heads": "sum_softmax"})",
        R"({"part": "centroid"})", R"({"part": "centroid", "heads": "max_softmax"})",
        R"({"part": "min_max"})", R"({"part": "all"})"}) {
    ScoredGroups scored(json, layer_);
    EXPECT_EQ(scored.score().groups, 0);
    EXPECT_TRUE(scored.score().values.empty());
  }
}

/// Adapters of a test, each a given matrix [rows, columns].
class TestAdapters final : public AdapterSource {
 public:
  TestAdapters(std::int64_t rows, std::int64_t columns) {
    Random random(5);
    adapter_.shape = {rows, columns};
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      adapter_.values.push_back(static_cast<float>(random.uniform() - 0.5));
    }
  }
  [[nodiscard]] static TestAdapters identity(std::int64_t rows) {
    TestAdapters source(rows, rows);
    for (std::int64_t i = 0; i < rows * rows; ++i) {
      source.adapter_.values[static_cast<std::size_t>(i)] = i / rows == i % rows ? 1.0F : 0.0F;
    }
    return source;
  }
  [[nodiscard]] Adapter adapter(std::int64_t layer, const std::string& name) const override {
    EXPECT_EQ(layer, 3);
    EXPECT_EQ(name, "joint_lowrank");
    return adapter_;
  }
  [[nodiscard]] double at(std::int64_t row, std::int64_t column) const {
    return static_cast<double>(
        adapter_.values[static_cast<std::size_t>(row * adapter_.shape[1] + column)]);
  }

 private:
  Adapter adapter_;
};

TEST_F(ScoringTest, LowRankMatchesItsFormula) {
  const TestAdapters adapters(32, 9);
  ScoredGroups scored(R"({"part": "low_rank", "rank": 5, "heads": "per_query_head"})", layer_,
                      &adapters);
  scored.create_varied();
  expect_per_head(scored.score(), scored.groups, [&](std::int64_t head, GroupId group) {
    double best = kNoScore;
    for (const Token token : scored.groups.members(group)) {
      double score = 0;
      for (std::int64_t column = 0; column < 5; ++column) {
        double q = 0;
        double k = 0;
        for (std::int64_t i = 0; i < 16; ++i) {
          q += query(head, i) * adapters.at(head / 3 * 16 + i, column);
          k += key(0, token, i) * adapters.at(i, column) +
               key(3, token, i) * adapters.at(16 + i, column);
        }
        score += q * k;
      }
      best = std::max(best, score);
    }
    return best;
  });
  EXPECT_EQ(scored.cost().held_bytes, 2 * 5 * scored.groups.grouped_tokens());
}

TEST_F(ScoringTest, LowRankAtFullRankIsExact) {
  const TestAdapters adapters = TestAdapters::identity(32);
  ScoredGroups low(R"({"part": "low_rank", "sigma": 1})", layer_, &adapters);
  ScoredGroups exact(R"({"part": "exact", "heads": "sum_softmax"})", layer_);
  low.create_varied();
  exact.create_varied();
  const Scores a = low.score();
  const Scores b = exact.score();
  for (std::size_t g = 0; g < a.values.size(); ++g) {
    if (!low.groups.live(static_cast<GroupId>(g))) continue;
    EXPECT_NEAR(a.values[g], b.values[g], 1e-4);
  }
}

TEST_F(ScoringTest, LowRankRefusesWhatTheAdapterCannotGive) {
  const auto message = [&](const std::string& json, std::int64_t rows) -> std::string {
    const TestAdapters adapters(rows, 9);
    try {
      const ScoredGroups scored(json, layer_, &adapters);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message(R"({"part": "low_rank", "rank": 10})", 32),
              ::testing::AllOf(HasSubstr("/rank"), HasSubstr("10"), HasSubstr("9")));
  EXPECT_THAT(message(R"({"part": "low_rank", "sigma": 2})", 32), HasSubstr("/sigma"));
  EXPECT_THAT(message(R"({"part": "low_rank"})", 64), HasSubstr("stream.heads"));
}

}  // namespace
}  // namespace kvreplay
