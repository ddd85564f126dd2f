#include "policies/decide/selection/selection.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/config.hpp"
#include "base/random.hpp"

namespace kvreplay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kNone = -std::numeric_limits<float>::infinity();

class SelectionTest : public ::testing::Test {
 protected:
  void create(std::int64_t size) {
    std::vector<Token> tokens(static_cast<std::size_t>(size));
    std::iota(tokens.begin(), tokens.end(), next_);
    next_ += static_cast<Token>(size);
    groups_.on_event({EventKind::kCreated, groups_.count(), kNoGroup, tokens});
  }
  void buffer(std::int64_t size) {
    std::vector<Token> tokens(static_cast<std::size_t>(size));
    std::iota(tokens.begin(), tokens.end(), next_);
    next_ += static_cast<Token>(size);
    groups_.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, tokens});
  }
  /// The picks of each row of `values`, [rows, groups].
  std::vector<RowSelection> select(const std::string& json, const std::vector<float>& values) {
    const auto selection = PartConfig<Selection>::parse(ConfigNode::parse(json, "test.json"))
                               .make({StreamShape{}, sinks_});
    const std::int64_t rows = std::ssize(values) / groups_.count();
    std::vector<RowSelection> picked(static_cast<std::size_t>(rows));
    for (RowSelection& row : picked) row = {{7, 7}, 3};  // those of an earlier step
    selection->select({rows, groups_.count(), values}, groups_, picked);
    return picked;
  }

  Groups groups_;
  Token next_ = 0;
  std::int64_t sinks_ = 0;
};

TEST_F(SelectionTest, EverythingTakesAllLiveGroups) {
  create(3);
  create(0);
  create(2);
  const auto picked = select(R"({"part": "everything"})", {0, kNone, 0});
  EXPECT_THAT(picked[0].groups, ElementsAre(0, 2));
  EXPECT_EQ(picked[0].last_tokens, 2);
}

TEST_F(SelectionTest, TopGroupsTakesTheBestInOrder) {
  for (int i = 0; i < 5; ++i) create(4);
  const auto picked =
      select(R"({"part": "top_groups", "groups": 3})", {1, 5, 5, 2, 0, /**/ 9, 0, 1, 0, 0});
  EXPECT_THAT(picked[0].groups, ElementsAre(1, 2, 3));
  EXPECT_THAT(picked[1].groups, ElementsAre(0, 2, 1));
  EXPECT_EQ(picked[1].last_tokens, 4);
}

TEST_F(SelectionTest, TopGroupsNeverTrims) {
  for (int i = 0; i < 5; ++i) create(4);
  const auto take = [&](const std::string& more) {
    return select(R"({"part": "top_groups", )" + more + "}", {1, 5, 4, 3, 2})[0].groups;
  };
  EXPECT_THAT(take(R"("budget_tokens": 11)"), ElementsAre(1, 2));
  EXPECT_THAT(take(R"("budget_tokens": 12)"), ElementsAre(1, 2, 3));
  EXPECT_THAT(take(R"("budget_tokens": 3)"), IsEmpty());
  EXPECT_THAT(take(R"("budget_tokens": 0, "budget_share": 0.5)"), ElementsAre(1, 2));
}

TEST_F(SelectionTest, TheBudgetMayCoverWhatIsKeptAnyway) {
  sinks_ = 4;
  for (int i = 0; i < 5; ++i) create(4);
  buffer(7);
  const auto take = [&](const char* covers) {
    return select(R"({"part": "token_budget", "budget_tokens": 17, "budget_covers": ")" +
                      std::string(covers) + "\"}",
                  {1, 5, 4, 3, 2})[0];
  };
  EXPECT_THAT(take("selected").groups, ElementsAre(1, 2, 3, 4, 0));
  EXPECT_EQ(take("selected").last_tokens, 1);
  EXPECT_THAT(take("sinks").groups, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(take("sinks").last_tokens, 1);
  // 17 minus 7 in memory and the step's own leaves 9.
  EXPECT_THAT(take("all").groups, ElementsAre(1, 2, 3));
  EXPECT_EQ(take("all").last_tokens, 1);
}

TEST_F(SelectionTest, DeadGroupsAreNeverPicked) {
  create(2);
  create(0);
  create(2);
  for (const char* json : {R"({"part": "top_groups", "groups": 3})",
                           R"({"part": "token_budget", "budget_tokens": 100})"}) {
    EXPECT_THAT(select(json, {-5, kNone, -1})[0].groups, ElementsAre(2, 0));
  }
}

TEST_F(SelectionTest, MatchesASlowReferenceOnRandomScores) {
  Random random(3);
  for (int i = 0; i < 300; ++i) create(static_cast<std::int64_t>(random.below(7)));
  for (const std::int64_t budget : {1, 7, 64, 333, 5000}) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < 2 * 300; ++i) {
      const bool live = groups_.live(static_cast<GroupId>(i % 300));
      values.push_back(live ? static_cast<float>(random.below(50)) : kNone);  // many ties
    }
    const auto trimmed = select(
        R"({"part": "token_budget", "budget_tokens": )" + std::to_string(budget) + "}", values);
    const auto whole = select(
        R"({"part": "top_groups", "budget_tokens": )" + std::to_string(budget) + "}", values);
    for (std::size_t row = 0; row < 2; ++row) {
      std::vector<GroupId> order;
      for (GroupId group = 0; group < 300; ++group) {
        if (groups_.live(group)) order.push_back(group);
      }
      std::stable_sort(order.begin(), order.end(), [&](GroupId a, GroupId b) {
        return values[row * 300 + static_cast<std::size_t>(a)] >
               values[row * 300 + static_cast<std::size_t>(b)];
      });
      std::vector<GroupId> expected;
      std::int64_t left = budget;
      std::size_t fits = 0;
      for (const GroupId group : order) {
        if (left <= 0) break;
        expected.push_back(group);
        left -= std::ssize(groups_.members(group));
        if (left >= 0) fits = expected.size();
      }
      EXPECT_EQ(trimmed[row].groups, expected);
      EXPECT_EQ(trimmed[row].last_tokens,
                std::ssize(groups_.members(expected.back())) + std::min<std::int64_t>(left, 0));
      expected.resize(fits);
      EXPECT_EQ(whole[row].groups, expected);
    }
  }
}

}  // namespace
}  // namespace kvreplay
