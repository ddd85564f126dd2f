#include "policies/decide/group_statistics.hpp"

#include <gtest/gtest.h>

#include "tests/support/log_builder.hpp"
#include "tests/support/random_layer.hpp"

namespace kvreplay {
namespace {

TEST(GroupStatistics, VarianceIsTheMeanSquaredDistanceOfMembersAtTheEnd) {
  const std::vector<float> values{0, 4, 10, 1, 7, 100};
  std::vector<Half> keys;
  for (const float value : values) keys.push_back(to_half(value));
  const HalfTensor tensor{keys.data(), 1, 6, 1, 6};
  // At the end the groups are {0, 4}, {10, 7} and {1}; 100 is in memory.
  const StreamLog log = StreamBuilder()
                            .create({0, 1, 3})
                            .create({2})
                            .request({0})
                            .append(1, {4})
                            .request({})
                            .split(0, {3})
                            .buffer({5})
                            .log();
  const Mean variance = group_variance(log, {tensor, tensor});
  EXPECT_EQ(variance.count, 5);
  EXPECT_NEAR(variance.sum, 2 * 4 + 2 * 2.25 + 0, 1e-9);
  EXPECT_NEAR(variance.value(), 12.5 / 5, 1e-9);
}

TEST(GroupStatistics, AnUpdatedGroupIsSelectedWithinSoManySteps) {
  const StreamLog log = StreamBuilder()
                            .create({0, 1})
                            .create({2, 3})
                            .request({1})
                            .append(0, {4})
                            .request({1})
                            .request({0})
                            .split(0, {1})
                            .request({1, 2})
                            .append(1, {5})
                            .request({})
                            .log();
  // Updates: 0 at step 0, requested two steps later; 0 and 2 at step 2, never and one step later; 1
  // at step 3, never.
  const std::vector<std::int64_t> within{1, 2, 4};
  const std::vector<Mean> means = selected_after_update(log, within);
  EXPECT_EQ(means[0].count, 4);
  EXPECT_EQ(means[0].sum, 1);
  EXPECT_EQ(means[1].count, 3);
  EXPECT_EQ(means[1].sum, 2);
  EXPECT_EQ(means[2].count, 1);
  EXPECT_EQ(means[2].value(), 1);
  // Of {1} one, of {0} none, and of {1, 2} none.
  const Mean reused = reused_groups(log);
  EXPECT_EQ(reused.count, 4);
  EXPECT_EQ(reused.sum, 1);
}

TEST(GroupStatistics, TheHotGroupsAreTheFewestThatGiveTheShare) {
  const StreamLog log = StreamBuilder()
                            .create({0, 1})
                            .create({2, 3})
                            .create({4, 5})
                            .create({6, 7})
                            .request({0, 1})
                            .request({1})
                            .request({1, 2})
                            .log();
  // Of five accesses, 1 has three, and 0 and 2 have one each.
  EXPECT_EQ(hot_groups(log, 0.6).sum, 1);
  EXPECT_EQ(hot_groups(log, 0.8).sum, 2);
  EXPECT_EQ(hot_groups(log, 1).sum, 3);
  EXPECT_EQ(hot_groups(log, 1).count, 4);
}

TEST(GroupStatistics, AttendedTokensAreCountedByPage) {
  StreamLog log = StreamBuilder().create({0, 1}).request({0}).request({0}).log();
  log.attended = {17, 0, 3, 2, 40, 41};
  log.attended_begin = {0, 4, 6};
  // Pages 0 and 1 of the first row hold three and one, and page 2 holds both of the second row.
  const Mean mean = attended_in_page(log, 16);
  EXPECT_EQ(mean.count, 3);
  EXPECT_EQ(mean.sum, 6);
}

TEST(GroupStatistics, FatesOfTokensWhenTheLogEnds) {
  const StreamLog log = StreamBuilder()
                            .create({0, 1, 2, 3, 4, 5})
                            .request({0})
                            .reencode(1, {0, 1, 2})
                            .request({0})
                            .evict(0, {0, 5})
                            .reencode(0, {2})
                            .log();
  const Mean evicted = evicted_tokens(log, 8);
  EXPECT_EQ(evicted.sum, 2);
  EXPECT_EQ(evicted.count, 8);
  const Mean reencoded = reencoded_tokens(log, 8);
  EXPECT_EQ(reencoded.sum, 1);
  EXPECT_EQ(reencoded.count, 6);
}

}  // namespace
}  // namespace kvreplay
