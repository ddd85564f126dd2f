#include "policies/place/layout/support/co_retrieval.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include "base/random.hpp"
#include "policies/place/layout/layout.hpp"
#include "policies/place/layout/support/write_buffers.hpp"

namespace kvreplay {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// What queries select, as flat arrays.
struct Window {
  std::vector<std::int64_t> begin{0};
  std::vector<GroupId> requested;

  Window& request(const std::vector<GroupId>& groups) {
    requested.insert(requested.end(), groups.begin(), groups.end());
    begin.push_back(std::ssize(requested));
    return *this;
  }
  [[nodiscard]] WindowSelections view() const { return {begin, requested}; }
};

std::vector<GroupId> flat(const std::vector<GroupPair>& chain) {
  std::vector<GroupId> groups;
  for (const GroupPair& pair : chain) {
    groups.push_back(pair.left);
    if (pair.right != kNoGroup) groups.push_back(pair.right);
  }
  return groups;
}

std::vector<GroupId> first_groups(GroupId count) {
  std::vector<GroupId> groups(static_cast<std::size_t>(count));
  std::iota(groups.begin(), groups.end(), 0);
  return groups;
}

TEST(CoRetrieval, TheMostCoRetrievedArePairedAndPairsAreChained) {
  // f(1, 4) = 3, f(0, 3) = 2, f(0, 4) = 1, f(2, 3) = 2 (3 is taken), f(2, 5) = 1.
  const Window window = Window()
                            .request({1, 4})
                            .request({1, 4})
                            .request({1, 4})
                            .request({0, 3})
                            .request({0, 3})
                            .request({0, 4})
                            .request({2, 3})
                            .request({2, 3})
                            .request({2, 5});
  // After (1, 4) comes 0, a neighbour of 4, so (0, 3) keeps its order; after 3 comes 2.
  EXPECT_THAT(flat(chain_of_pairs(window.view(), first_groups(6))), ElementsAre(1, 4, 0, 3, 2, 5));
}

TEST(CoRetrieval, APairIsTurnedSoThatNeighboursTouch) {
  const Window window = Window()
                            .request({0, 1})
                            .request({0, 1})
                            .request({0, 1})
                            .request({2, 3})
                            .request({2, 3})
                            .request({1, 3});
  EXPECT_THAT(flat(chain_of_pairs(window.view(), first_groups(4))), ElementsAre(0, 1, 3, 2));
}

TEST(CoRetrieval, WithoutQueriesGroupsStayInOrder) {
  EXPECT_THAT(flat(chain_of_pairs({}, first_groups(5))), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(chain_of_pairs({}, {}), IsEmpty());
}

TEST(CoRetrieval, RememberedChainsAreThoseOfTheirWindowAndGroups) {
  const Window one = Window().request({0, 3}).request({1, 2});
  const Window other = Window().request({0, 1}).request({2, 3});
  PairChains chains;
  for (int again = 0; again < 2; ++again) {
    for (const Window* window : {&one, &other}) {
      for (const GroupId count : {3, 4}) {
        EXPECT_EQ(flat(chains.of(window->view(), first_groups(count))),
                  flat(chain_of_pairs(window->view(), first_groups(count))));
      }
    }
  }
  EXPECT_THAT(flat(chains.of({}, first_groups(3))), ElementsAre(0, 1, 2));
}

TEST(CoRetrieval, EveryGroupIsInTheChainOnceAndPairsAreGreedy) {
  Random random(3);
  for (int trial = 0; trial < 50; ++trial) {
    Window window;
    for (int query = 0; query < 12; ++query) {
      std::vector<GroupId> requested;
      for (GroupId group = 0; group < 11; ++group) {
        if (random.below(4) == 0) requested.push_back(group);
      }
      window.request(requested);
    }
    std::vector<GroupId> groups = first_groups(11);
    std::erase_if(groups, [&](GroupId group) { return group % 5 == 2; });  // not live any more
    const std::vector<GroupPair> chain = chain_of_pairs(window.view(), groups);
    std::vector<GroupId> sorted = flat(chain);
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, groups);

    const auto count = [&](GroupId a, GroupId b) {
      int both = 0;
      for (std::size_t query = 0; query < 12; ++query) {
        const std::set<GroupId> requested(window.requested.begin() + window.begin[query],
                                          window.requested.begin() + window.begin[query + 1]);
        both += requested.contains(a) && requested.contains(b) ? 1 : 0;
      }
      return both;
    };
    std::set<GroupId> left(groups.begin(), groups.end());
    std::set<std::pair<GroupId, GroupId>> expected;
    while (left.size() > 1) {
      std::pair<GroupId, GroupId> best{kNoGroup, kNoGroup};
      int max_count = 0;
      for (const GroupId a : left) {
        for (const GroupId b : left) {
          if (a < b && count(a, b) > max_count) {
            max_count = count(a, b);
            best = {a, b};
          }
        }
      }
      if (max_count == 0) best = {*left.begin(), *std::next(left.begin())};
      expected.insert(best);
      left.erase(best.first);
      left.erase(best.second);
    }
    std::set<std::pair<GroupId, GroupId>> pairs;
    for (const GroupPair& pair : chain) {
      if (pair.right != kNoGroup) pairs.insert(std::minmax(pair.left, pair.right));
    }
    EXPECT_EQ(pairs, expected);
  }
}

/// One stream of 10-byte entries under a layout that knows `window`.
class Bench {
 public:
  Bench(const std::string& json, const Window& window)
      : stored_({10}),
        layout_(PartConfig<Layout>::parse(ConfigNode::parse(json, "test.json"))
                    .make({.streams = 1,
                           .entry_bytes = 10,
                           .max_tokens = 100,
                           .window = {window.view()}})) {}

  LayoutTraffic event(EventKind kind, GroupId group, std::vector<Token> tokens,
                      std::int32_t other = kNoGroup) {
    const GroupEvent event{kind, group, other, tokens};
    stored_.on_event(event);
    LayoutTraffic traffic;
    layout_->notify_event(0, event, stored_, traffic);
    return traffic;
  }
  void create(std::vector<Token> tokens) {
    event(EventKind::kCreated, stored_.groups().count(), std::move(tokens));
  }
  void end_prompt() {
    LayoutTraffic traffic;
    layout_->end_prompt(0, stored_, traffic);
  }
  [[nodiscard]] std::vector<Extent> locate(const std::vector<GroupId>& groups) const {
    std::vector<Extent> extents;
    for (const GroupId group : groups) layout_->locate(0, group, stored_, extents);
    coalesce(extents);
    return extents;
  }
  [[nodiscard]] const Layout& layout() const { return *layout_; }

 private:
  StoredStream stored_;
  std::unique_ptr<Layout> layout_;
};

TEST(Correlated, CoRetrievedGroupsAreOneRange) {
  const Window window = Window().request({0, 2}).request({0, 2}).request({1, 3});
  Bench bench(R"({"part": "correlated"})", window);
  EXPECT_TRUE(bench.layout().needs_window());
  bench.create({0, 1});
  bench.create({2, 3, 4});
  bench.create({5});
  bench.create({6, 7});
  EXPECT_THAT(bench.locate({0, 2}), ElementsAre(Extent{0, 20}, Extent{50, 10}));
  bench.end_prompt();
  EXPECT_THAT(bench.locate({0, 2}), ElementsAre(Extent{0, 30}));
  EXPECT_THAT(bench.locate({1, 3}), ElementsAre(Extent{30, 50}));
  EXPECT_EQ(bench.layout().region_bytes(), 80u);
}

TEST(DualHead, APairGrowsInwardAndIsOneRangeOnceItHasMet) {
  const Window window = Window().request({0, 2});
  Bench bench(R"({"part": "dual_head", "headroom_share": 0})", window);
  bench.create({0, 1});
  bench.create({2, 3, 4});
  bench.create({5});
  bench.end_prompt();
  // Pools of 2 x 3 entries: 0 and 2 share the first.
  EXPECT_THAT(bench.locate({0}), ElementsAre(Extent{0, 20}));
  EXPECT_THAT(bench.locate({2}), ElementsAre(Extent{50, 10}));
  EXPECT_THAT(bench.locate({1}), ElementsAre(Extent{60, 30}));
  // An append writes only the new entry, and moves nothing.
  EXPECT_THAT(bench.event(EventKind::kAppended, 2, {6}).writes, ElementsAre(Extent{40, 10}));
  EXPECT_THAT(bench.event(EventKind::kAppended, 0, {7, 8}).writes, ElementsAre(Extent{20, 20}));
  EXPECT_THAT(bench.locate({0, 2}), ElementsAre(Extent{0, 60})) << "met: one read";
  // There is no room, so the group is read and moved to the free end of the other pool.
  LayoutTraffic traffic = bench.event(EventKind::kAppended, 2, {9});
  EXPECT_THAT(traffic.moved_reads, ElementsAre(Extent{40, 20}));
  EXPECT_THAT(traffic.writes, ElementsAre(Extent{90, 30}));
  EXPECT_THAT(bench.locate({1, 2}), ElementsAre(Extent{60, 60}));
  // A split keeps one half where the group began; the other takes the first free end with room.
  traffic = bench.event(EventKind::kSplit, 0, {1, 8}, 3);
  EXPECT_THAT(traffic.moved_reads, IsEmpty()) << "a group that is split is in memory";
  EXPECT_THAT(traffic.writes, ElementsAre(Extent{0, 20}, Extent{40, 20}));
  traffic = bench.event(EventKind::kSplit, 1, {3, 4}, 4);
  EXPECT_THAT(traffic.writes, ElementsAre(Extent{60, 10}, Extent{120, 20})) << "a new pool";
  EXPECT_EQ(bench.layout().region_bytes(), 180u);
  // Evicted entries leave holes until the group is written anew.
  bench.event(EventKind::kEvicted, 2, {6});
  EXPECT_THAT(bench.locate({2}), ElementsAre(Extent{90, 10}, Extent{110, 10}));
  bench.event(EventKind::kDissolved, 3, {});
  bench.create({20, 21, 22, 23});
  EXPECT_THAT(bench.locate({5}), ElementsAre(Extent{20, 40})) << "the free end is used again";
}

WriteBuffers make_buffers(std::int64_t page_bytes, std::int64_t hot_groups) {
  const std::string json = R"({"page_bytes": )" + std::to_string(page_bytes) +
                           R"(, "hot_groups": )" + std::to_string(hot_groups) + "}";
  return WriteBuffers(
      parse_arguments(ConfigNode::parse(json, "test.json"), WriteBuffers::parameters()));
}

TEST(WriteBuffers, WithoutPagesEverythingIsWrittenAsItLies) {
  WriteBuffers buffers = make_buffers(0, 0);
  LayoutTraffic traffic;
  const Extent extents[] = {{7, 3}, {100, 1}};
  buffers.append(0, 1, extents, traffic);
  EXPECT_THAT(traffic.writes, ElementsAre(Extent{7, 3}, Extent{100, 1}));
  EXPECT_THAT(traffic.moved_reads, IsEmpty());
  EXPECT_EQ(buffers.held_bytes(), 0);
  EXPECT_EQ(buffers.whole_pages(33), 33u);
}

TEST(WriteBuffers, AColdGroupsPageIsReadChangedAndWritten) {
  WriteBuffers buffers = make_buffers(16, 0);
  LayoutTraffic traffic;
  const Extent extent{30, 4};
  buffers.append(0, 1, {&extent, 1}, traffic);
  EXPECT_THAT(traffic.writes, ElementsAre(Extent{16, 16}, Extent{32, 16}));
  EXPECT_THAT(traffic.moved_reads, ElementsAre(Extent{16, 16}, Extent{32, 16}));
  EXPECT_EQ(buffers.held_bytes(), 0);
  EXPECT_EQ(buffers.whole_pages(33), 48u);
}

TEST(WriteBuffers, HotGroupsWaitForAPageToFill) {
  WriteBuffers buffers = make_buffers(16, 2);
  const auto append = [&](GroupId group, Extent extent) {
    LayoutTraffic traffic;
    buffers.append(0, group, {&extent, 1}, traffic);
    return traffic;
  };
  EXPECT_THAT(append(1, {0, 8}).writes, IsEmpty());
  EXPECT_THAT(append(2, {40, 4}).writes, IsEmpty());
  EXPECT_EQ(buffers.held_bytes(), 32);
  // The page is full, so nothing needs to be read. The next one begins.
  LayoutTraffic traffic = append(1, {8, 10});
  EXPECT_THAT(traffic.writes, ElementsAre(Extent{0, 16}));
  EXPECT_THAT(traffic.moved_reads, IsEmpty());
  // Group 2 continues on another page; its old one began with older entries.
  traffic = append(2, {44, 8});
  EXPECT_THAT(traffic.writes, ElementsAre(Extent{32, 16}));
  EXPECT_THAT(traffic.moved_reads, ElementsAre(Extent{32, 16}));
  // A third group displaces the one that was updated longest ago.
  traffic = append(3, {80, 1});
  EXPECT_THAT(traffic.writes, ElementsAre(Extent{16, 16}));
  EXPECT_EQ(buffers.held_bytes(), 32);
  buffers.forget(0, 3);
  EXPECT_EQ(buffers.held_bytes(), 16);
}

}  // namespace
}  // namespace kvreplay
