#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "policies/decide/grouping/grouping.hpp"
#include "policies/decide/grouping/support/clusters.hpp"
#include "tests/support/random_layer.hpp"

namespace kvreplay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Recorder final : public EventSink {
 public:
  void on_event(const GroupEvent& event) override {
    groups.on_event(event);
    kinds.push_back(event.kind);
    event_groups.push_back(event.group);
  }
  void clear() {
    kinds.clear();
    event_groups.clear();
  }

  Groups groups;
  std::vector<EventKind> kinds;
  std::vector<GroupId> event_groups;
};

std::unique_ptr<Grouping> make(const std::string& json, const StreamShape& shape) {
  return PartConfig<Grouping>::parse(ConfigNode::parse(json, "test.json")).make({shape, 7});
}

using Key = std::vector<double>;

Key key_of(const Entries& entries, Token token) {
  Key key;
  for (std::int64_t head = 0; head < entries.keys.heads; ++head) {
    for (std::int64_t i = 0; i < entries.keys.dim; ++i) {
      key.push_back(static_cast<double>(to_float(entries.keys.row(head, token)[i])));
    }
  }
  return key;
}

double distance(const Key& a, const Key& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

Key mean_of(const Entries& entries, const std::vector<Token>& tokens) {
  Key mean = key_of(entries, tokens.front());
  std::fill(mean.begin(), mean.end(), 0.0);
  for (const Token token : tokens) {
    const Key key = key_of(entries, token);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += key[i] / static_cast<double>(tokens.size());
    }
  }
  return mean;
}

double variance_of(const Entries& entries, const std::vector<Token>& tokens) {
  const Key mean = mean_of(entries, tokens);
  double sum = 0;
  for (const Token token : tokens) sum += distance(key_of(entries, token), mean);
  return sum / static_cast<double>(tokens.size());
}

TEST(Moments, EqualTheTwoPassOnes) {
  const RandomLayer layer(40, 0);
  const Entries entries = layer.entries(40);
  std::vector<Token> tokens;
  Moments moments(2 * 16);
  EXPECT_EQ(moments.variance(), 0);
  for (const Token token : {31, 0, 17, 18, 19, 5, 39}) {
    tokens.push_back(token);
    std::vector<float> key;
    for (const double element : key_of(entries, token)) key.push_back(static_cast<float>(element));
    EXPECT_NEAR(moments.variance_with(key), variance_of(entries, tokens), 1e-12);
    moments.add(key);
    EXPECT_NEAR(moments.variance(), variance_of(entries, tokens), 1e-12);
    const Key mean = mean_of(entries, tokens);
    for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(moments.mean()[i], mean[i], 1e-12);
  }
  EXPECT_EQ(moments.count(), 7);
  EXPECT_NEAR(Moments(entries, tokens).variance(), moments.variance(), 1e-12);
}

/// The rule in its plainest form: every mean and variance is computed anew from the members.
class Reference {
 public:
  Reference(double quantile, std::int64_t max_buffered, bool delayed)
      : quantile_(quantile), max_buffered_(max_buffered), delayed_(delayed) {}

  void add_prompt(const Entries& entries, const Groups& groups) {
    std::vector<double> variances;
    for (GroupId group = 0; group < groups.count(); ++group) {
      variances.push_back(variance_of(entries, groups.members(group)));
    }
    std::sort(variances.begin(), variances.end());
    std::size_t at = 0;
    while (static_cast<double>(at + 1) < quantile_ * static_cast<double>(variances.size())) ++at;
    tau_ = variances[at];
  }

  /// The groups to append to, buffer for, load and split, given the state before the step.
  struct Actions {
    std::vector<GroupId> appended, buffered, loaded, split;
  };
  Actions add_token(const Entries& entries, Token token, const std::set<GroupId>& selected,
                    const Groups& groups) {
    Actions actions;
    GroupId nearest = 0;
    std::vector<double> distances;
    for (GroupId group = 0; group < groups.count(); ++group) {
      distances.push_back(
          distance(key_of(entries, token), mean_of(entries, groups.members(group))));
    }
    nearest = static_cast<GroupId>(std::min_element(distances.begin(), distances.end()) -
                                   distances.begin());
    std::vector<Token> members = groups.members(nearest);
    members.push_back(token);
    std::set<GroupId> split;
    if (variance_of(entries, members) <= tau_) {
      actions.appended.push_back(nearest);
    } else {
      ++waiting_[nearest];
      if (!selected.contains(nearest) && delayed_) actions.buffered.push_back(nearest);
      if (!selected.contains(nearest) && !delayed_) {
        actions.loaded.push_back(nearest);
        actions.split.push_back(nearest);
        waiting_.erase(nearest);
      }
    }
    for (const GroupId group : selected) {
      if (waiting_.erase(group) > 0) actions.split.push_back(group);
    }
    std::int64_t total = 0;
    for (const auto& [group, count] : waiting_) total += count;
    if (total >= max_buffered_) {
      const auto fullest = std::max_element(waiting_.begin(), waiting_.end(),
                                            [](auto& a, auto& b) { return a.second < b.second; });
      actions.loaded.push_back(fullest->first);
      actions.split.push_back(fullest->first);
      waiting_.erase(fullest);
    }
    return actions;
  }

 private:
  double quantile_;
  std::int64_t max_buffered_;
  bool delayed_;
  double tau_ = 0;
  std::map<GroupId, std::int64_t> waiting_;
};

/// Groups of the step's events of one kind. The append of a split's waiting tokens does not count.
std::vector<GroupId> groups_of(const Recorder& events, EventKind kind) {
  std::vector<GroupId> groups;
  for (std::size_t i = 0; i < events.kinds.size(); ++i) {
    const bool of_split = kind == EventKind::kAppended && i + 1 < events.kinds.size() &&
                          events.kinds[i + 1] == EventKind::kSplit;
    if (events.kinds[i] == kind && !of_split) groups.push_back(events.event_groups[i]);
  }
  return groups;
}

TEST(Adaptive, DoesWhatTheReferenceDoes) {
  const RandomLayer layer(96, 160, 3);
  for (const bool joint : {false, true}) {
    for (const bool delayed : {true, false}) {
      StreamShape shape = layer.joint_stream();
      if (!joint) shape.kv_heads = 1;
      const auto entries = [&](std::int64_t end) {
        return layer.entries(end).select_heads(0, shape.kv_heads);
      };
      const auto grouping =
          make(std::string(R"({"part": "adaptive", "tokens_per_cluster": 8, "tau_quantile": 0.6,
                              "max_buffered_tokens": 4, "max_iterations": 500,
                              "delayed_split": )") +
                   (delayed ? "true}" : "false}"),
               shape);
      Reference reference(0.6, 4, delayed);
      Recorder events;
      grouping->add_prompt(entries(96), 0, 96, events.groups, events);
      reference.add_prompt(entries(96), events.groups);
      Random random(5);
      std::size_t splits = 0, buffered = 0, loads = 0, appends = 0;
      for (Token token = 96; token < 256; ++token) {
        std::set<GroupId> selected;
        for (GroupId group = 0; group < events.groups.count(); ++group) {
          if (random.below(12) == 0) selected.insert(group);
        }
        const auto expected =
            reference.add_token(entries(token + 1), token, selected, events.groups);
        events.clear();
        grouping->add_token(entries(token + 1), token,
                            std::vector<GroupId>(selected.begin(), selected.end()), events.groups,
                            events);
        ASSERT_EQ(groups_of(events, EventKind::kAppended), expected.appended) << token;
        ASSERT_EQ(groups_of(events, EventKind::kBuffered), expected.buffered) << token;
        ASSERT_EQ(groups_of(events, EventKind::kLoaded), expected.loaded) << token;
        ASSERT_EQ(groups_of(events, EventKind::kSplit), expected.split) << token;
        // Every token is in exactly one place, and never more than B_max - 1 tokens wait after a
        // step.
        ASSERT_EQ(events.groups.grouped_tokens() + std::ssize(events.groups.buffered()), token + 1);
        ASSERT_LT(std::ssize(events.groups.buffered()), 4);
        splits += expected.split.size();
        buffered += expected.buffered.size();
        loads += expected.loaded.size();
        appends += expected.appended.size();
      }
      EXPECT_GT(splits, 5u);
      EXPECT_GT(appends, 5u);
      EXPECT_GT(loads, 2u);
      EXPECT_EQ(buffered > 5, delayed);
    }
  }
}

TEST(Adaptive, ASplitIsALocalTwoMeansAndTheLargerHalfKeepsItsNumber) {
  const RandomLayer layer(60, 60, 9);
  const StreamShape shape = layer.joint_stream();
  const auto grouping = make(R"({"part": "adaptive", "tokens_per_cluster": 20, "tau_quantile": 0,
                                 "max_iterations": 500})",
                             shape);
  Recorder events;
  grouping->add_prompt(layer.entries(60), 0, 60, events.groups, events);
  int splits = 0;
  for (Token token = 60; token < 120; ++token) {
    std::vector<std::vector<Token>> before;
    std::vector<GroupId> all;
    for (GroupId group = 0; group < events.groups.count(); ++group) {
      before.push_back(events.groups.members(group));
      all.push_back(group);
    }
    events.clear();
    const Entries entries = layer.entries(token + 1);
    grouping->add_token(entries, token, all, events.groups, events);
    EXPECT_THAT(events.groups.buffered(), IsEmpty()) << "all clusters are in memory";
    for (const GroupId group : groups_of(events, EventKind::kSplit)) {
      ++splits;
      const std::vector<Token>& stays = events.groups.members(group);
      const std::vector<Token>& leaves = events.groups.members(events.groups.count() - 1);
      std::vector<Token> joined = stays;
      joined.insert(joined.end(), leaves.begin(), leaves.end());
      std::sort(joined.begin(), joined.end());
      std::vector<Token> expected = before[static_cast<std::size_t>(group)];
      expected.push_back(token);
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(joined, expected);
      EXPECT_GE(stays.size(), leaves.size());
      for (const auto& [own, other] : {std::pair(stays, leaves), std::pair(leaves, stays)}) {
        for (const Token member : own) {
          EXPECT_LE(distance(key_of(entries, member), mean_of(entries, own)),
                    distance(key_of(entries, member), mean_of(entries, other)) + 1e-4);
        }
      }
    }
  }
  EXPECT_GT(splits, 5);
}

TEST(Adaptive, FollowsWhatRetentionTakesAway) {
  const RandomLayer layer(40, 60, 2);
  const auto grouping = make(R"({"part": "adaptive", "tokens_per_cluster": 5, "tau_quantile": 0.3,
                                 "max_buffered_tokens": 8})",
                             layer.joint_stream());
  Recorder events;
  grouping->add_prompt(layer.entries(40), 0, 40, events.groups, events);
  Random random(8);
  std::int64_t evicted = 0;
  for (Token token = 40; token < 100; ++token) {
    std::vector<GroupId> selected;
    for (GroupId group = 0; group < events.groups.count(); ++group) {
      if (events.groups.live(group) && random.below(6) == 0) selected.push_back(group);
    }
    grouping->add_token(layer.entries(token + 1), token, selected, events.groups, events);
    for (Token old = 0; old < token; ++old) {
      const Groups::Where where = events.groups.where(old);
      if (where == Groups::Where::kEvicted || random.below(40) != 0) continue;
      events.on_event(
          {EventKind::kEvicted, events.groups.group_of(old), kNoGroup, std::span(&old, 1)});
      ++evicted;
    }
    ASSERT_EQ(events.groups.grouped_tokens() + std::ssize(events.groups.buffered()) + evicted,
              token + 1);
  }
  EXPECT_GT(evicted, 30);
  EXPECT_LT(events.groups.live_groups(), events.groups.count()) << "some group emptied";
}

TEST(Adaptive, WithoutAPromptTheFirstTokenMakesACluster) {
  const RandomLayer layer(4, 4);
  const auto grouping = make(R"({"part": "adaptive"})", layer.joint_stream());
  Recorder events;
  grouping->add_prompt(layer.entries(4), 4, 4, events.groups, events);
  EXPECT_EQ(events.groups.count(), 0);
  for (Token token = 4; token < 8; ++token) {
    grouping->add_token(layer.entries(token + 1), token, {}, events.groups, events);
  }
  EXPECT_THAT(events.groups.members(0), ElementsAre(4, 5, 6, 7));
}

TEST(Global, EveryPeriodAllKeysAreClusteredAnew) {
  const RandomLayer layer(60, 20);
  const auto grouping = make(
      R"({"part": "global", "tokens_per_cluster": 6, "period_tokens": 8, "max_iterations": 500})",
      layer.joint_stream());
  Recorder events;
  grouping->add_prompt(layer.entries(60), 0, 60, events.groups, events);
  for (Token token = 60; token < 80; ++token) {
    const std::int64_t live = events.groups.live_groups();
    events.clear();
    const Entries entries = layer.entries(token + 1);
    grouping->add_token(entries, token, {}, events.groups, events);
    EXPECT_EQ(events.groups.grouped_tokens(), token + 1);
    if ((token + 1 - 60) % 8 != 0) {
      EXPECT_THAT(events.kinds, ElementsAre(EventKind::kAppended));
      continue;
    }
    EXPECT_EQ(std::count(events.kinds.begin(), events.kinds.end(), EventKind::kLoaded), live);
    EXPECT_EQ(std::count(events.kinds.begin(), events.kinds.end(), EventKind::kDissolved), live);
    std::vector<Key> means;
    for (GroupId group = 0; group < events.groups.count(); ++group) {
      if (!events.groups.live(group)) continue;
      means.push_back(mean_of(entries, events.groups.members(group)));
    }
    EXPECT_LE(std::ssize(means), (token + 1) / 6);
    for (Token member = 0; member <= token; ++member) {
      const Key key = key_of(entries, member);
      const double own =
          distance(key, mean_of(entries, events.groups.members(events.groups.group_of(member))));
      for (const Key& mean : means) EXPECT_LE(own, distance(key, mean) + 1e-4);
    }
  }
}

}  // namespace
}  // namespace kvreplay
