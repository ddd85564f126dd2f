#include "policies/decide/log/groups.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.hpp"

namespace kvreplay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Groups, FollowsEachKindOfEvent) {
  Groups groups;
  const std::vector<Token> first{0, 1, 2};
  groups.on_event({EventKind::kCreated, 0, kNoGroup, first});
  const std::vector<Token> waiting{3, 4};
  groups.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, waiting});
  EXPECT_THAT(groups.buffered(), ElementsAre(3, 4));

  const std::vector<Token> four{4};
  groups.on_event({EventKind::kAppended, 0, kNoGroup, four});
  EXPECT_THAT(groups.members(0), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(groups.buffered(), ElementsAre(3));

  const std::vector<Token> half{1, 4};
  groups.on_event({EventKind::kSplit, 0, 1, half});
  EXPECT_THAT(groups.members(0), ElementsAre(0, 2));
  EXPECT_THAT(groups.members(1), ElementsAre(1, 4));
  EXPECT_EQ(groups.live_groups(), 2);

  const std::vector<Token> gone{2};
  groups.on_event({EventKind::kEvicted, 0, kNoGroup, gone});
  EXPECT_EQ(groups.where(2), Groups::Where::kEvicted);
  groups.on_event({EventKind::kDissolved, 1});
  EXPECT_THAT(groups.members(1), IsEmpty());
  EXPECT_THAT(groups.buffered(), ElementsAre(1, 3, 4));
  EXPECT_EQ(groups.live_groups(), 1);
  EXPECT_EQ(groups.grouped_tokens(), 1);
}

TEST(Groups, ATokenInMemoryMayBeBufferedAgain) {
  Groups groups;
  const std::vector<Token> tokens{5, 6};
  groups.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, tokens});
  groups.on_event({EventKind::kBuffered, 0, kNoGroup, tokens});
  EXPECT_THAT(groups.buffered(), ElementsAre(5, 6));
}

TEST(Groups, TokensThatLeaveMemoryAndComeBackAreThereOnce) {
  Groups groups;
  const std::vector<Token> tokens{2, 4, 6, 8};
  groups.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, tokens});
  EXPECT_THAT(groups.buffered(), ElementsAre(2, 4, 6, 8));
  // Between two looks: into a group, back, some into the next one, and newer and older ones come.
  groups.on_event({EventKind::kCreated, 0, kNoGroup, tokens});
  groups.on_event({EventKind::kDissolved, 0});
  const std::vector<Token> two{8, 4};
  groups.on_event({EventKind::kCreated, 1, kNoGroup, two});
  groups.on_event({EventKind::kDissolved, 1});
  const std::vector<Token> one{6};
  groups.on_event({EventKind::kCreated, 2, kNoGroup, one});
  const std::vector<Token> others{9, 1, 5};
  groups.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, others});
  EXPECT_THAT(groups.buffered(), ElementsAre(1, 2, 4, 5, 8, 9));
  const std::vector<Token> gone{5};
  groups.on_event({EventKind::kEvicted, kNoGroup, kNoGroup, gone});
  EXPECT_THAT(groups.buffered(), ElementsAre(1, 2, 4, 8, 9));
}

TEST(Groups, ErasesEvictedTokensFromAList) {
  Groups groups;
  std::vector<Token> tokens{0, 1, 2};
  groups.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, tokens});
  const std::vector<Token> one{1};
  groups.on_event({EventKind::kEvicted, kNoGroup, kNoGroup, one});
  groups.erase_evicted(tokens);
  EXPECT_THAT(tokens, ElementsAre(0, 2));
}

TEST(Groups, EveryTokenIsInOnePlaceWhateverHappens) {
  Random random(7);
  Groups groups;
  std::map<Token, GroupId> reference;  // kNoGroup = in memory, -2 = evicted
  Token next = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto group = static_cast<GroupId>(
        groups.count() == 0 ? 0 : random.below(static_cast<std::uint64_t>(groups.count())));
    std::vector<Token> tokens;
    switch (random.below(6)) {
      case 0:
        tokens = {next, next + 1, next + 2};
        for (const Token token : tokens) reference[token] = groups.count();
        groups.on_event({EventKind::kCreated, groups.count(), kNoGroup, tokens});
        next += 3;
        break;
      case 1:
        tokens = {next++};
        reference[tokens[0]] = kNoGroup;
        groups.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, tokens});
        break;
      case 2:
        if (groups.buffered().empty() || groups.count() == 0) continue;
        tokens = {groups.buffered().back()};
        reference[tokens[0]] = group;
        groups.on_event({EventKind::kAppended, group, kNoGroup, tokens});
        break;
      case 3:
        if (groups.count() == 0 || groups.members(group).size() < 2) continue;
        tokens = {groups.members(group).front()};
        reference[tokens[0]] = groups.count();
        groups.on_event({EventKind::kSplit, group, groups.count(), tokens});
        break;
      case 4:
        if (groups.count() == 0 || !groups.live(group)) continue;
        tokens = {groups.members(group).back()};
        reference[tokens[0]] = -2;
        groups.on_event({EventKind::kEvicted, group, kNoGroup, tokens});
        break;
      default:
        if (groups.count() == 0 || random.below(20) > 0) continue;
        for (const Token token : groups.members(group)) reference[token] = kNoGroup;
        groups.on_event({EventKind::kDissolved, group});
        break;
    }
    std::int64_t grouped = 0;
    std::set<GroupId> live;
    for (const auto& [token, place] : reference) {
      ASSERT_EQ(groups.group_of(token), place < 0 ? kNoGroup : place);
      ASSERT_EQ(groups.where(token), place == -2         ? Groups::Where::kEvicted
                                     : place == kNoGroup ? Groups::Where::kBuffered
                                                         : Groups::Where::kGrouped);
      if (place < 0) continue;
      ++grouped;
      live.insert(place);
    }
    ASSERT_EQ(groups.grouped_tokens(), grouped);
    ASSERT_EQ(groups.live_groups(), std::ssize(live));
    ASSERT_TRUE(std::is_sorted(groups.buffered().begin(), groups.buffered().end()));
  }
  EXPECT_GT(groups.count(), 100);
}

}  // namespace
}  // namespace kvreplay
