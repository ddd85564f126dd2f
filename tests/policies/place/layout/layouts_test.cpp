#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "policies/place/layout/layout.hpp"
#include "policies/place/layout/support/space.hpp"
#include "tests/support/log_builder.hpp"

namespace kvreplay {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::unique_ptr<Layout> make_layout(const std::string& json, std::int64_t entry_bytes,
                                    std::int64_t streams, std::int64_t max_tokens) {
  return PartConfig<Layout>::parse(ConfigNode::parse(json, "test.json"))
      .make({.streams = streams, .entry_bytes = entry_bytes, .max_tokens = max_tokens});
}

/// One stream of 10-byte entries (3 bytes in format 1) under a layout.
class OneStream {
 public:
  explicit OneStream(const std::string& json)
      : stored_({10, 3}), layout_(make_layout(json, 10, 1, 100)) {}

  std::vector<Extent> event(EventKind kind, GroupId group, std::vector<Token> tokens,
                            std::int32_t other = kNoGroup) {
    const GroupEvent event{kind, group, other, tokens};
    stored_.on_event(event);
    LayoutTraffic traffic;
    layout_->notify_event(0, event, stored_, traffic);
    moved_reads = traffic.moved_reads;
    return traffic.writes;
  }
  std::vector<Extent> create(std::vector<Token> tokens) {
    return event(EventKind::kCreated, stored_.groups().count(), std::move(tokens));
  }
  [[nodiscard]] std::vector<Extent> locate(GroupId group) const {
    std::vector<Extent> extents;
    layout_->locate(0, group, stored_, extents);
    return extents;
  }
  [[nodiscard]] const Layout& layout() const { return *layout_; }

  std::vector<Extent> moved_reads;  // of the latest event

 private:
  StoredStream stored_;
  std::unique_ptr<Layout> layout_;
};

TEST(Sequence, EntriesLieInTheOrderOfTokens) {
  OneStream bench(R"({"part": "sequence"})");
  EXPECT_THAT(bench.create({0, 1, 4}), ElementsAre(Extent{0, 20}, Extent{40, 10}));
  EXPECT_THAT(bench.create({2, 3}), ElementsAre(Extent{20, 20}));
  EXPECT_THAT(bench.event(EventKind::kAppended, 0, {5}), ElementsAre(Extent{50, 10}));
  EXPECT_THAT(bench.locate(0), ElementsAre(Extent{0, 20}, Extent{40, 20}));
  // Nothing moves, and entries on flash are not written again.
  EXPECT_THAT(bench.event(EventKind::kSplit, 0, {1, 5}, 2), IsEmpty());
  EXPECT_THAT(bench.locate(2), ElementsAre(Extent{10, 10}, Extent{50, 10}));
  EXPECT_THAT(bench.event(EventKind::kDissolved, 1, {}), IsEmpty());
  EXPECT_THAT(bench.create({2, 3}), IsEmpty());
  EXPECT_THAT(bench.event(EventKind::kReencoded, kNoGroup, {2}, 1), ElementsAre(Extent{20, 3}));
  EXPECT_THAT(bench.locate(3), ElementsAre(Extent{20, 3}, Extent{30, 10}));
  EXPECT_EQ(bench.layout().region_bytes(), 1000u);
}

TEST(Grouped, EntriesOfAGroupLieTogether) {
  OneStream bench(R"({"part": "grouped", "growth_share": 0.5})");
  EXPECT_THAT(bench.create({0, 2, 4, 6}), ElementsAre(Extent{0, 40}));
  EXPECT_THAT(bench.create({1, 3}), ElementsAre(Extent{40, 20}));
  // The group gets a further range of half its size, into which the next append fits.
  EXPECT_THAT(bench.event(EventKind::kAppended, 0, {5}), ElementsAre(Extent{60, 10}));
  EXPECT_THAT(bench.event(EventKind::kAppended, 0, {7}), ElementsAre(Extent{70, 10}));
  EXPECT_THAT(bench.locate(0), ElementsAre(Extent{0, 40}, Extent{60, 20}));
  EXPECT_EQ(bench.layout().region_bytes(), 80u);
  // Evicted entries leave holes until the group is written anew.
  EXPECT_THAT(bench.event(EventKind::kEvicted, 0, {2}), IsEmpty());
  EXPECT_THAT(bench.event(EventKind::kAppended, 0, {8}), ElementsAre(Extent{80, 10}));
  std::vector<Extent> extents = bench.locate(0);
  coalesce(extents);
  EXPECT_THAT(extents, ElementsAre(Extent{0, 10}, Extent{20, 20}, Extent{60, 30}));
  EXPECT_THAT(bench.event(EventKind::kSplit, 0, {7, 8}, 2),
              ElementsAre(Extent{0, 40}, Extent{60, 20}));
  EXPECT_THAT(bench.locate(0), ElementsAre(Extent{0, 40}));
  EXPECT_THAT(bench.locate(2), ElementsAre(Extent{60, 20}));
  // The room of a dissolved group is reused.
  EXPECT_THAT(bench.event(EventKind::kDissolved, 1, {}), IsEmpty());
  EXPECT_THAT(bench.create({9, 10}), ElementsAre(Extent{40, 20}));
  EXPECT_THAT(bench.event(EventKind::kReencoded, kNoGroup, {9, 10}, 1), ElementsAre(Extent{40, 6}));
  EXPECT_THAT(bench.locate(3), ElementsAre(Extent{40, 6}));
}

TEST(Packed, WhatFollowsAGroupThatGrowsIsMoved) {
  OneStream bench(R"({"part": "packed"})");
  EXPECT_THAT(bench.create({0, 2, 4}), ElementsAre(Extent{0, 30}));
  EXPECT_THAT(bench.create({1, 3}), ElementsAre(Extent{30, 20}));
  EXPECT_THAT(bench.event(EventKind::kAppended, 1, {5}), ElementsAre(Extent{50, 10}));
  EXPECT_THAT(bench.moved_reads, IsEmpty());
  EXPECT_THAT(bench.event(EventKind::kAppended, 0, {6}),
              ElementsAre(Extent{30, 10}, Extent{40, 30}));
  EXPECT_THAT(bench.moved_reads, ElementsAre(Extent{30, 30}));
  // The halves of a split take the room that they had, and come from memory.
  EXPECT_THAT(bench.event(EventKind::kSplit, 0, {2, 6}, 2),
              ElementsAre(Extent{0, 20}, Extent{20, 20}));
  EXPECT_THAT(bench.moved_reads, IsEmpty());
  EXPECT_THAT(bench.event(EventKind::kEvicted, 2, {6}),
              ElementsAre(Extent{20, 10}, Extent{30, 30}));
  EXPECT_THAT(bench.moved_reads, ElementsAre(Extent{20, 20}, Extent{40, 30}));
  EXPECT_THAT(bench.event(EventKind::kDissolved, 0, {}),
              ElementsAre(Extent{0, 10}, Extent{10, 30}));
  EXPECT_THAT(bench.locate(1), ElementsAre(Extent{10, 30}));
}

TEST(Space, GivesTheFirstThatFitsAndMergesNeighbours) {
  Space space;
  EXPECT_EQ(space.take(10), (Extent{0, 10}));
  EXPECT_EQ(space.take(20), (Extent{10, 20}));
  EXPECT_EQ(space.take(5), (Extent{30, 5}));
  space.give_back({0, 10});
  space.give_back({30, 5});
  EXPECT_EQ(space.take(12), (Extent{30, 12}));  // the free end grows
  EXPECT_EQ(space.take(4), (Extent{0, 4}));
  space.give_back({10, 20});
  EXPECT_EQ(space.take(26), (Extent{4, 26}));
  EXPECT_EQ(space.region_bytes(), 42u);
}

/// Checks byte by byte that what a live group is read from has been written, and belongs to no
/// other live group.
class EachLayout : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Layouts, EachLayout,
                         testing::Values(R"({"part": "sequence"})", R"({"part": "packed"})",
                                         R"({"part": "grouped"})",
                                         R"({"part": "grouped", "growth_share": 0})",
                                         R"({"part": "grouped", "growth_share": 2})",
                                         R"({"part": "correlated"})", R"({"part": "dual_head"})",
                                         R"({"part": "dual_head", "headroom_share": 4})"));

TEST_P(EachLayout, LiveGroupsAreDisjointAndWritten) {
  Random random(11);
  const std::vector<std::int64_t> formats{6, 3, 7};
  for (int trial = 0; trial < 25; ++trial) {
    constexpr std::int32_t kStreams = 2;
    std::vector<StoredStream> stored(kStreams, StoredStream(formats));
    std::vector<StreamLog> logs;
    std::vector<WindowSelections> window;
    for (int s = 0; s < kStreams; ++s) logs.push_back(random_stream(random, {}));
    for (StreamLog& log : logs) {
      for (int query = 0; query < 8; ++query) {
        for (GroupId group = 0; group < 5; ++group) {
          if (random.below(2) == 0) log.window_requested.push_back(group);
        }
        log.window_begin.push_back(std::ssize(log.window_requested));
      }
      window.push_back({log.window_begin, log.window_requested});
    }
    const std::unique_ptr<Layout> layout =
        PartConfig<Layout>::parse(ConfigNode::parse(GetParam(), "test.json"))
            .make({.streams = kStreams, .entry_bytes = 7, .max_tokens = 100, .window = window});
    std::vector<bool> written(100000);
    const auto mark = [&](const LayoutTraffic& traffic) {
      for (const Extent& write : traffic.writes) {
        EXPECT_LE(write.end(), layout->region_bytes());
        for (std::uint64_t byte = write.offset; byte < write.end(); ++byte) written[byte] = true;
      }
    };
    for (std::int64_t segment = 0; segment <= 60; ++segment) {
      for (std::int32_t s = 0; s < kStreams; ++s) {
        StoredStream& stream = stored[static_cast<std::size_t>(s)];
        logs[static_cast<std::size_t>(s)].for_events(segment, [&](const GroupEvent& event) {
          stream.on_event(event);
          LayoutTraffic traffic;
          layout->notify_event(s, event, stream, traffic);
          mark(traffic);
        });
      }
      for (std::int32_t s = 0; segment == 0 && s < kStreams; ++s) {
        LayoutTraffic traffic;
        layout->end_prompt(s, stored[static_cast<std::size_t>(s)], traffic);
        mark(traffic);
      }
      std::map<std::uint64_t, std::pair<std::int32_t, GroupId>> owner;
      for (std::int32_t s = 0; s < kStreams; ++s) {
        const StoredStream& stream = stored[static_cast<std::size_t>(s)];
        for (GroupId group = 0; group < stream.groups().count(); ++group) {
          std::int64_t expected = 0;
          for (const Token token : stream.groups().members(group)) {
            expected += stream.entry_bytes(token);
          }
          EXPECT_EQ(stream.group_bytes(group), expected);
          if (!stream.groups().live(group)) continue;
          std::vector<Extent> extents;
          layout->locate(s, group, stream, extents);
          std::int64_t bytes = 0;
          for (const Extent& extent : extents) {
            bytes += static_cast<std::int64_t>(extent.bytes);
            EXPECT_LE(extent.end(), layout->region_bytes());
            for (std::uint64_t byte = extent.offset; byte < extent.end(); ++byte) {
              EXPECT_TRUE(written[byte]) << "never written";
              EXPECT_TRUE(owner.emplace(byte, std::pair(s, group)).second) << "two owners";
            }
          }
          EXPECT_EQ(bytes, expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvreplay
