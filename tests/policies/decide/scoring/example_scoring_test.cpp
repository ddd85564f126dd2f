// The example of docs/adding-a-part.md: a scoring part in one file, and the test that compiles and
// runs it.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/build_info.hpp"
#include "policies/decide/scoring/support/aggregate.hpp"
#include "policies/kernels/kernels.hpp"
#include "tests/support/scored_groups.hpp"

namespace kvreplay {
namespace {

/// A group's representative is the key of its first member: one row per group, by token number.
class FirstKey final : public Scoring {
 public:
  FirstKey(HeadRule rule, const StreamShape& shape) : shape_(shape), aggregate_(rule, shape) {}

  void notify_event(const GroupEvent&, const Groups&, const Entries&) override {}

  [[nodiscard]] Scores score(QueryRows queries, const Groups& groups,
                             const Entries& entries) override {
    const std::int64_t dim = shape_.head_dim;
    const std::span<float> scores = aggregate_.scores(groups.count());
    for (GroupId group = 0; group < groups.count(); ++group) {
      if (!groups.live(group)) continue;
      const Token first = groups.members(group).front();
      for (std::int64_t head = 0; head < shape_.query_heads(); ++head) {
        const Half* key = entries.keys.row(shape_.kv_head_of(head), first);
        kernels::score(queries.data() + head * dim, 1, key, 1, dim,
                       scores.data() + head * groups.count() + group, 1);
      }
    }
    const std::int64_t elements = groups.live_groups() * shape_.kv_heads * dim;
    cost_ = {.held_bytes = 2 * elements,
             .read_bytes = 2 * elements,
             .flops = 2 * groups.live_groups() * shape_.query_heads() * dim};
    return aggregate_.of_groups(groups);
  }

  [[nodiscard]] ScoreCost cost() const override { return cost_; }

 private:
  StreamShape shape_;
  Aggregate aggregate_;
  ScoreCost cost_;
};

const Registered<Scoring> kFirstKey({
    .name = "first_key",
    .help = "inner product of the query with the group's first key",
    .source = "an example",
    .parameters = {head_rule_parameter("per_query_head")},
    .make =
        [](const Arguments& arguments, const Scoring::Context& context) {
          return std::make_unique<FirstKey>(head_rule_of(arguments), context.shape);
        },
});

TEST(ExampleScoring, ScoresTheFirstMember) {
  const RandomLayer layer(40, 8);
  ScoredGroups scored(R"({"part": "first_key"})", layer);
  scored.create_varied();
  const Scores scores = scored.score();
  ASSERT_EQ(scores.rows, 6);
  for (std::int64_t head = 0; head < 6; ++head) {
    for (GroupId group = 0; group < scored.groups.count(); ++group) {
      const float found = scores.row(head)[static_cast<std::size_t>(group)];
      if (scored.groups.live(group)) {
        EXPECT_NEAR(found, layer.logit(head, 40, scored.groups.members(group).front()), 1e-3);
      } else {
        EXPECT_EQ(found, -std::numeric_limits<float>::infinity());
      }
    }
  }
}

TEST(ExampleScoring, IsPickedByNameInASystem) {
  const RandomLayer layer(50, 6);
  const DecideSpec spec = decide_spec(
      R"({"grouping": {"part": "page", "group_tokens": 4},
          "scoring": {"part": "first_key", "heads": "mean"},
          "selection": {"part": "top_groups", "groups": 3}})");
  const LayerLog log = replay_layer(layer, spec, [](std::int64_t, auto attention) {
    for (const HeadAttention& head : attention) EXPECT_LT(head.tokens.size(), 20u);
  });
  EXPECT_EQ(log.streams[0].requested_at(5).size(), 3u);
  EXPECT_EQ(part_catalogue().at({"scoring", "first_key"}).source, "an example");
}

std::string read(const std::string& file) {
  std::ifstream stream(source_folder() + "/" + file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(ExampleScoring, TheDocumentShowsThisCode) {
  const std::string document = read("docs/adding-a-part.md");
  const std::size_t begin = document.find("```cpp\n") + 7;
  const std::size_t end = document.find("```", begin);
  ASSERT_NE(end, std::string::npos);
  const std::string block = document.substr(begin, end - begin);
  EXPECT_GT(block.size(), 500u);
  EXPECT_THAT(read("tests/policies/decide/scoring/example_scoring_test.cpp"),
              ::testing::HasSubstr(block));
}

}  // namespace
}  // namespace kvreplay
