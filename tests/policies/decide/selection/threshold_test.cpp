#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "policies/decide/selection/selection.hpp"
#include "tests/support/random_layer.hpp"

namespace kvreplay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// One token per group.
Groups tokens(Token count) {
  Groups groups;
  for (Token token = 0; token < count; ++token) {
    groups.on_event({EventKind::kCreated, token, kNoGroup, {&token, 1}});
  }
  return groups;
}

std::vector<RowSelection> select(const std::string& arguments, const Groups& groups,
                                 const std::vector<float>& values, float scale = 1) {
  StreamShape shape;
  shape.softmax_scale = scale;
  const auto selection =
      PartConfig<Selection>::parse(
          ConfigNode::parse(R"({"part": "threshold", )" + arguments + "}", "test.json"))
          .make({shape, 0});
  const std::int64_t rows = std::ssize(values) / groups.count();
  std::vector<RowSelection> picked(static_cast<std::size_t>(rows));
  selection->select({rows, groups.count(), values}, groups, picked);
  return picked;
}

TEST(Threshold, EveryRowSelectsTheMeanCount) {
  // Above the best minus 5: one of row 0 and four of row 1. The mean, 2.5, is rounded down.
  const auto picked = select(R"("alpha": 5)", tokens(4), {9, 3, 2, 1, 4, 8, 5, 6});
  EXPECT_THAT(picked[0].groups, ElementsAre(0, 1));
  EXPECT_THAT(picked[1].groups, ElementsAre(1, 3));
}

TEST(Threshold, AlphaIsOfScaledLogits) {
  EXPECT_THAT(select(R"("alpha": 5)", tokens(3), {40, 20, 0}, 0.125F)[0].groups, ElementsAre(0, 1));
}

TEST(Threshold, TheBudgetIsACap) {
  const std::vector<float> equal(10, 1);
  EXPECT_EQ(select(R"("budget_tokens": 3)", tokens(10), equal)[0].groups.size(), 3u);
  EXPECT_EQ(
      select(R"("budget_tokens": 0, "budget_share": 0.25)", tokens(10), equal)[0].groups.size(),
      2u);
  EXPECT_THAT(select(R"("budget_tokens": 0, "budget_share": 0.05)", tokens(10), equal)[0].groups,
              IsEmpty());
}

TEST(Threshold, MatchesASlowReference) {
  Random random(3);
  for (int trial = 0; trial < 50; ++trial) {
    const auto count = static_cast<Token>(1 + random.below(60));
    std::vector<float> values;
    for (Token i = 0; i < 6 * count; ++i) {
      values.push_back(static_cast<float>(random.below(200)) / 8);  // with ties
    }
    const std::int64_t cap = 1 + static_cast<std::int64_t>(random.below(40));
    const auto picked =
        select(R"("alpha": 4, "budget_tokens": )" + std::to_string(cap), tokens(count), values);

    std::int64_t above = 0;
    for (std::int64_t row = 0; row < 6; ++row) {
      const auto begin = values.begin() + row * count;
      const float best = *std::max_element(begin, begin + count);
      above += std::count_if(begin, begin + count, [&](float x) { return x > best - 4; });
    }
    for (std::int64_t row = 0; row < 6; ++row) {
      std::vector<GroupId> order(static_cast<std::size_t>(count));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](GroupId a, GroupId b) {
        return values[static_cast<std::size_t>(row * count + a)] >
               values[static_cast<std::size_t>(row * count + b)];
      });
      order.resize(static_cast<std::size_t>(std::min(above / 6, cap)));
      EXPECT_EQ(picked[static_cast<std::size_t>(row)].groups, order);
    }
  }
}

TEST(Threshold, NoGroupsNoPicks) {
  StreamShape shape;
  const auto selection = PartConfig<Selection>::by_name("threshold").make({shape, 0});
  std::vector<RowSelection> picked(6);
  selection->select({6, 0, {}}, Groups{}, picked);
  EXPECT_THAT(picked[5].groups, IsEmpty());
}

}  // namespace
}  // namespace kvreplay
