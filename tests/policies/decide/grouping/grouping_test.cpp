#include "policies/decide/grouping/grouping.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "tests/support/random_layer.hpp"

namespace kvreplay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Applies a grouping's events and remembers them.
class AppliedEvents final : public EventSink {
 public:
  void on_event(const GroupEvent& event) override {
    groups.on_event(event);
    log.add(event);
  }
  void end_segment() { log.end_segment(); }

  Groups groups;
  StreamLog log;
};

std::unique_ptr<Grouping> make_grouping(const std::string& json, const StreamShape& shape,
                                        std::uint64_t seed = 1) {
  return PartConfig<Grouping>::parse(ConfigNode::parse(json, "test.json")).make({shape, seed});
}

constexpr const char* kParts[] = {
    R"({"part": "whole"})",
    R"({"part": "token"})",
    R"({"part": "page", "group_tokens": 4})",
    R"({"part": "k_means", "tokens_per_cluster": 8, "update": "static", "window_tokens": 6})",
    R"({"part": "k_means", "tokens_per_cluster": 8, "window_tokens": 6, "window_clusters": 2})",
    R"({"part": "adaptive", "tokens_per_cluster": 8, "tau_quantile": 0.5, "max_buffered_tokens": 3})",
    R"({"part": "adaptive", "tokens_per_cluster": 8, "tau_quantile": 0, "delayed_split": false})",
    R"({"part": "global", "tokens_per_cluster": 8, "period_tokens": 5})",
};

TEST(Grouping, EveryTokenIsPlacedAndNoneTwice) {
  const RandomLayer layer(61, 25);
  for (const char* json : kParts) {
    for (const bool joint : {false, true}) {
      for (const Token begin : {0, 5, 61}) {
        StreamShape shape = layer.joint_stream();
        if (!joint) shape.kv_heads = 1;
        const auto grouping = make_grouping(json, shape);
        AppliedEvents events;
        const auto entries = [&](std::int64_t end) {
          return layer.entries(end).select_heads(0, shape.kv_heads);
        };
        grouping->add_prompt(entries(61), begin, 61, events.groups, events);
        ASSERT_EQ(events.groups.grouped_tokens() + std::ssize(events.groups.buffered()),
                  61 - begin);
        for (Token token = 61; token < 86; ++token) {
          grouping->add_token(entries(token + 1), token, {}, events.groups, events);
          ASSERT_EQ(events.groups.grouped_tokens() + std::ssize(events.groups.buffered()),
                    token + 1 - begin)
              << json;
        }
        EXPECT_GT(events.groups.grouped_tokens(), 0) << json;
      }
    }
  }
}

TEST(Grouping, PagesAreCreatedWholeAndSealed) {
  const RandomLayer layer(10, 8);
  const auto grouping = make_grouping(kParts[2], layer.joint_stream());
  AppliedEvents events;
  grouping->add_prompt(layer.entries(10), 1, 10, events.groups, events);
  EXPECT_EQ(events.groups.count(), 2);
  EXPECT_THAT(events.groups.members(1), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(events.groups.buffered(), ElementsAre(9));
  for (Token token = 10; token < 13; ++token) {
    grouping->add_token(layer.entries(token + 1), token, {}, events.groups, events);
  }
  EXPECT_THAT(events.groups.members(2), ElementsAre(9, 10, 11, 12));
  EXPECT_THAT(events.groups.buffered(), IsEmpty());
  EXPECT_EQ(
      std::count(events.log.event_kind.begin(), events.log.event_kind.end(), EventKind::kSealed),
      3);
}

TEST(Grouping, APageLeavesOutWhatWasEvictedWhileItWaited) {
  const RandomLayer layer(4, 8);
  const auto grouping = make_grouping(kParts[2], layer.joint_stream());
  AppliedEvents events;
  grouping->add_prompt(layer.entries(4), 1, 4, events.groups, events);
  const std::vector<Token> gone{2};
  events.on_event({EventKind::kEvicted, kNoGroup, kNoGroup, gone});
  grouping->add_token(layer.entries(5), 4, {}, events.groups, events);
  EXPECT_THAT(events.groups.members(0), ElementsAre(1, 3, 4));
}

TEST(Grouping, TheWholeGroupGrowsByOne) {
  const RandomLayer layer(5, 2);
  const auto grouping = make_grouping(kParts[0], layer.joint_stream());
  AppliedEvents events;
  grouping->add_prompt(layer.entries(5), 0, 5, events.groups, events);
  grouping->add_token(layer.entries(6), 5, {}, events.groups, events);
  EXPECT_EQ(events.groups.count(), 1);
  EXPECT_THAT(events.groups.members(0), ElementsAre(0, 1, 2, 3, 4, 5));
}

/// The joint key of a token, all heads of the view side by side.
std::vector<double> joint_key(const Entries& entries, Token token) {
  std::vector<double> key;
  for (std::int64_t head = 0; head < entries.keys.heads; ++head) {
    for (std::int64_t i = 0; i < entries.keys.dim; ++i) {
      key.push_back(static_cast<double>(to_float(entries.keys.row(head, token)[i])));
    }
  }
  return key;
}

std::vector<double> mean_key(const Entries& entries, const std::vector<Token>& tokens) {
  std::vector<double> mean(static_cast<std::size_t>(entries.keys.heads * entries.keys.dim));
  for (const Token token : tokens) {
    const std::vector<double> key = joint_key(entries, token);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += key[i] / static_cast<double>(tokens.size());
    }
  }
  return mean;
}

double squared_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

TEST(Grouping, KMeansReachesAFixedPointOverJointKeys) {
  const RandomLayer layer(120, 1);
  const auto grouping = make_grouping(
      R"({"part": "k_means", "metric": "euclidean", "clusters": 12, "max_iterations": 500})",
      layer.joint_stream());
  AppliedEvents events;
  const Entries entries = layer.entries(120);
  grouping->add_prompt(entries, 4, 120, events.groups, events);
  ASSERT_GT(events.groups.count(), 6);
  std::vector<std::vector<double>> means;
  for (GroupId group = 0; group < events.groups.count(); ++group) {
    means.push_back(mean_key(entries, events.groups.members(group)));
  }
  for (Token token = 4; token < 120; ++token) {
    const std::vector<double> key = joint_key(entries, token);
    const double own =
        squared_distance(key, means[static_cast<std::size_t>(events.groups.group_of(token))]);
    for (const std::vector<double>& mean : means)
      EXPECT_LE(own, squared_distance(key, mean) + 1e-5);
  }
}

TEST(Grouping, TheStaticUpdateJoinsTheNearestPromptCluster) {
  const RandomLayer layer(120, 30);
  const auto grouping = make_grouping(
      R"({"part": "k_means", "metric": "euclidean", "clusters": 9, "max_iterations": 500,
               "update": "static"})",
      layer.joint_stream());
  AppliedEvents events;
  grouping->add_prompt(layer.entries(120), 0, 120, events.groups, events);
  std::vector<std::vector<double>> means;
  for (GroupId group = 0; group < events.groups.count(); ++group) {
    means.push_back(mean_key(layer.entries(120), events.groups.members(group)));
  }
  for (Token token = 120; token < 150; ++token) {
    grouping->add_token(layer.entries(token + 1), token, {}, events.groups, events);
    const std::vector<double> key = joint_key(layer.entries(token + 1), token);
    const double own =
        squared_distance(key, means[static_cast<std::size_t>(events.groups.group_of(token))]);
    for (const std::vector<double>& mean : means)
      EXPECT_LE(own, squared_distance(key, mean) + 1e-5);
  }
  EXPECT_EQ(events.groups.count(), std::ssize(means));
}

TEST(Grouping, TheLocalUpdateClustersEachWindowByItself) {
  const RandomLayer layer(80, 13);
  const auto grouping = make_grouping(kParts[4], layer.joint_stream());
  AppliedEvents events;
  grouping->add_prompt(layer.entries(80), 0, 80, events.groups, events);
  const GroupId of_prompt = events.groups.count();
  EXPECT_LE(of_prompt, 10);
  for (Token token = 80; token < 93; ++token) {
    grouping->add_token(layer.entries(token + 1), token, {}, events.groups, events);
    EXPECT_EQ(std::ssize(events.groups.buffered()), (token + 1 - 80) % 6);
  }
  EXPECT_LE(events.groups.count(), of_prompt + 4);
  for (GroupId group = of_prompt; group < events.groups.count(); ++group) {
    const auto [low, high] = std::minmax_element(events.groups.members(group).begin(),
                                                 events.groups.members(group).end());
    EXPECT_EQ((*low - 80) / 6, (*high - 80) / 6) << "a cluster spans two windows";
  }
}

TEST(Grouping, TheClusterCountFollowsThePrompt) {
  const RandomLayer layer(61, 1);
  const auto grouping =
      make_grouping(R"({"part": "k_means", "tokens_per_cluster": 1000000})", layer.joint_stream());
  AppliedEvents events;
  grouping->add_prompt(layer.entries(61), 0, 61, events.groups, events);
  EXPECT_EQ(events.groups.count(), 1);
  EXPECT_EQ(events.groups.members(0).size(), 61u);
}

}  // namespace
}  // namespace kvreplay
