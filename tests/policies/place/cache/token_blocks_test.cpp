#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "policies/place/cache/cache.hpp"

namespace kvreplay {
namespace {

/// A cache of blocks of 10 tokens for two streams, where group t is token t, of 4 bytes.
class TokenBlocksTest : public ::testing::Test {
 protected:
  void make(std::int64_t capacity_blocks) {
    cache_ =
        PartConfig<Cache>::parse(ConfigNode::parse(R"({"part": "token_blocks", "block_tokens": 10,
                                       "capacity_blocks": )" +
                                                       std::to_string(capacity_blocks) + "}",
                                                   "test.json"))
            .make({.streams = 2});
  }
  /// 'h' or 'm' for each token of stream 0, then of stream 1.
  std::string step(const std::vector<Token>& first, const std::vector<Token>& second = {}) {
    std::string result;
    for (std::int32_t stream = 0; stream < 2; ++stream) {
      for (const Token token : stream == 0 ? first : second) {
        const bool held = cache_->contains({stream, token});
        result += cache_->access({{stream, token}, 4}, {&token, 1}) ? 'h' : 'm';
        EXPECT_EQ(result.back() == 'h', held);
      }
    }
    cache_->end_step();
    return result;
  }

  std::unique_ptr<Cache> cache_;
};

TEST_F(TokenBlocksTest, ABlockHoldsWhatWasReadOfIt) {
  make(2);
  EXPECT_EQ(step({1, 5, 31}), "mmm");
  EXPECT_EQ(cache_->used_bytes(), 12);
  EXPECT_EQ(step({1, 6, 31}), "hmh");
  EXPECT_EQ(step({5, 6}), "hh");
  EXPECT_EQ(cache_->used_bytes(), 16);
}

TEST_F(TokenBlocksTest, TheBlocksAskedForMostComeIn) {
  make(1);
  // Block 2 has two tokens, one of each stream; blocks 0 and 4 have one.
  EXPECT_EQ(step({3, 25, 44}, {21}), "mmmm");
  EXPECT_EQ(step({3, 25, 44}, {21}), "mhmh");
  EXPECT_EQ(cache_->used_bytes(), 8);
}

TEST_F(TokenBlocksTest, TheLeastUsedBlockLeaves) {
  make(2);
  EXPECT_EQ(step({3, 14}), "mm");
  EXPECT_EQ(step({3}), "h");
  // Block 1 was used once, block 0 twice.
  EXPECT_EQ(step({25}), "m");
  EXPECT_EQ(step({3, 25}), "hh");
  EXPECT_EQ(step({14}), "m");  // replaces block 2: two uses, not three
  EXPECT_EQ(step({25}), "m");
}

TEST_F(TokenBlocksTest, TheLongestUnusedOfEqualsLeaves) {
  make(2);
  EXPECT_EQ(step({3}), "m");
  EXPECT_EQ(step({14}), "m");
  EXPECT_EQ(step({25}), "m");
  EXPECT_EQ(step({14}), "h");
  EXPECT_EQ(step({3}), "m");
}

TEST_F(TokenBlocksTest, AnErasedGroupIsGone) {
  make(2);
  EXPECT_EQ(step({3, 4}), "mm");
  cache_->erase({0, 3});
  EXPECT_EQ(cache_->used_bytes(), 4);
  cache_->notify_resize({0, 4}, 9);
  EXPECT_EQ(cache_->used_bytes(), 9);
  EXPECT_FALSE(cache_->contains({0, 3}));
}

}  // namespace
}  // namespace kvreplay
