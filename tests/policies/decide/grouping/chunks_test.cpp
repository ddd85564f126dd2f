#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "policies/decide/grouping/grouping.hpp"
#include "tests/support/random_layer.hpp"

namespace kvreplay {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

/// The groups after the prompt, and after each step, of one stream of all heads.
class ChunksDriver final : public EventSink {
 public:
  ChunksDriver(const std::string& arguments, const RandomLayer& layer)
      : layer_(layer),
        grouping_(PartConfig<Grouping>::parse(
                      ConfigNode::parse(R"({"part": "chunks", )" + arguments + "}", "test"))
                      .make({layer.joint_stream(), 1})) {}

  void prompt(Token begin, Token end) {
    grouping_->add_prompt(layer_.entries(layer_.shape.prompt_tokens), begin, end, groups, *this);
  }
  void step(Token token) {
    grouping_->add_token(layer_.entries(token + 1), token, {}, groups, *this);
  }
  void on_event(const GroupEvent& event) override { groups.on_event(event); }

  Groups groups;

 private:
  const RandomLayer& layer_;
  std::unique_ptr<Grouping> grouping_;
};

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double product = 0;
  double of_a = 0;
  double of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += a[i] * b[i];
    of_a += a[i] * a[i];
    of_b += b[i] * b[i];
  }
  return product / std::sqrt(of_a * of_b);
}

/// Smallest cosine, over KV heads and tokens, of a key with the mean key of [begin, begin + 4).
double min_cosine(const RandomLayer& layer, Token begin) {
  double min = 1;
  for (std::int64_t kv = 0; kv < 2; ++kv) {
    std::vector<std::vector<double>> keys;
    std::vector<double> mean(16, 0);
    for (Token token = begin; token < begin + 4; ++token) {
      keys.emplace_back();
      for (std::int64_t i = 0; i < 16; ++i) {
        keys.back().push_back(
            static_cast<double>(to_float(layer.entries(60).keys.row(kv, token)[i])));
        mean[static_cast<std::size_t>(i)] += keys.back().back() / 4;
      }
    }
    for (const std::vector<double>& key : keys) min = std::min(min, cosine(key, mean));
  }
  return min;
}

TEST(Chunks, TheWorstRepresentedStayInMemory) {
  const RandomLayer layer(60, 5);
  ChunksDriver driver(R"("chunk_tokens": 4, "outlier_chunks": 3, "local_chunks": 2)", layer);
  driver.prompt(2, 60);
  // 58 tokens: 14 chunks and 2 tokens; the last 2 chunks are local, 12 are candidates.
  std::vector<std::pair<double, Token>> order;
  for (Token begin = 2; begin < 50; begin += 4) order.push_back({min_cosine(layer, begin), begin});
  std::sort(order.begin(), order.end());
  std::vector<Token> buffered;
  for (std::size_t i = 0; i < 3; ++i) {
    for (Token t = 0; t < 4; ++t) buffered.push_back(order[i].second + t);
  }
  for (Token token = 50; token < 60; ++token) buffered.push_back(token);
  std::sort(buffered.begin(), buffered.end());
  EXPECT_THAT(driver.groups.buffered(), ElementsAreArray(buffered));

  EXPECT_EQ(driver.groups.count(), 9);
  for (GroupId group = 0; group < 9; ++group) {
    const std::vector<Token>& members = driver.groups.members(group);
    ASSERT_EQ(members.size(), 4u);
    EXPECT_EQ(members.back() - members.front(), 3);
    EXPECT_EQ((members.front() - 2) % 4, 0);
  }
}

TEST(Chunks, GeneratedTokensStayInMemory) {
  const RandomLayer layer(60, 5);
  ChunksDriver driver(R"("chunk_tokens": 8, "outlier_chunks": 0, "local_chunks": 0)", layer);
  driver.prompt(0, 60);
  for (Token token = 60; token < 65; ++token) driver.step(token);
  EXPECT_EQ(driver.groups.count(), 7);
  EXPECT_THAT(driver.groups.buffered(), ElementsAre(56, 57, 58, 59, 60, 61, 62, 63, 64));
}

TEST(Chunks, AShortPromptIsInMemoryWhole) {
  const RandomLayer layer(60, 5);
  for (const Token end : {0, 3, 32, 60}) {
    ChunksDriver driver(R"("chunk_tokens": 8, "outlier_chunks": 48, "local_chunks": 4)", layer);
    driver.prompt(0, end);
    EXPECT_EQ(driver.groups.count(), 0);
    EXPECT_EQ(std::ssize(driver.groups.buffered()), end);
  }
}

}  // namespace
}  // namespace kvreplay
