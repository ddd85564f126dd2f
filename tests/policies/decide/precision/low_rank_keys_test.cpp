#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "policies/decide/precision/precision.hpp"
#include "tests/support/random_layer.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kPrompt = 40;
const RotaryEmbedding kRope(10000, true, 16);

/// A layer whose keys, of both heads side by side, have rank 3 before kRope rotates them.
RandomLayer low_rank_layer(bool turned) {
  RandomLayer layer(kPrompt, 4);
  Random random(9);
  std::vector<double> basis;
  for (int i = 0; i < 3 * 32; ++i) basis.push_back(random.uniform() - 0.5);
  for (std::int64_t token = 0; token < layer.shape.max_tokens; ++token) {
    std::vector<float> flat(32, 0.0F);
    for (std::size_t r = 0; r < 3; ++r) {
      const double factor = 2 * random.uniform() - 1;
      for (std::size_t i = 0; i < 32; ++i) {
        flat[i] += static_cast<float>(factor * basis[r * 32 + i]);
      }
    }
    for (std::int64_t kv = 0; kv < 2; ++kv) {
      const auto key = std::span(flat).subspan(static_cast<std::size_t>(kv) * 16, 16);
      if (turned) kRope.rotate(key, token);
      for (std::int64_t i = 0; i < 16; ++i) {
        layer.keys[static_cast<std::size_t>((kv * layer.shape.max_tokens + token) * 16 + i)] =
            to_half(key[i]);
      }
    }
  }
  return layer;
}

/// KV head 1 of a layer, as a stream of its own. Prompt tokens [4, 36) are in a group.
class LowRankDriver final : public EventSink {
 public:
  LowRankDriver(const std::string& arguments, const RandomLayer& layer,
                std::shared_ptr<void>* of_layer = nullptr)
      : layer_(layer) {
    StreamShape stream = layer.joint_stream();
    stream.first_kv_head = 1;
    stream.kv_heads = 1;
    precision_ = PartConfig<Precision>::parse(
                     ConfigNode::parse(R"({"part": "low_rank_keys", )" + arguments + "}", "test"))
                     .make({.shape = stream,
                            .max_tokens = layer.shape.max_tokens,
                            .rope = kRope,
                            .of_layer = of_layer});
    std::vector<Token> grouped;
    std::vector<Token> rest;
    for (Token token = 0; token < kPrompt; ++token) {
      (token >= 4 && token < 36 ? grouped : rest).push_back(token);
    }
    precision_->add_tokens(own(kPrompt), 0, kPrompt, *this);
    groups_.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, rest});
    groups_.on_event({EventKind::kCreated, 0, kNoGroup, grouped});
    precision_->after_prompt(layer.entries(kPrompt), groups_, *this);
    for (Token token = kPrompt; token < kPrompt + 3; ++token) {
      precision_->add_tokens(own(token + 1), token, token + 1, *this);
    }
  }

  void on_event(const GroupEvent& event) override {
    ASSERT_EQ(event.kind, EventKind::kReencoded);
    for (const Token token : event.tokens) {
      formats[static_cast<std::size_t>(token)] = event.other;
    }
  }
  /// The largest difference of a key element from the exact one, by token.
  [[nodiscard]] std::vector<double> key_errors() {
    const Entries exact = own(layer_.shape.max_tokens);
    const Entries decoded = precision_->decoded(exact);
    std::vector<double> errors;
    for (std::int64_t token = 0; token < layer_.shape.max_tokens; ++token) {
      errors.push_back(0);
      for (std::int64_t i = 0; i < 16; ++i) {
        const double difference = static_cast<double>(to_float(exact.keys.row(0, token)[i])) -
                                  static_cast<double>(to_float(decoded.keys.row(0, token)[i]));
        errors.back() = std::max(errors.back(), std::abs(difference));
        EXPECT_EQ(to_float(exact.values.row(0, token)[i]),
                  to_float(decoded.values.row(0, token)[i]));
      }
    }
    return errors;
  }
  [[nodiscard]] const Precision& precision() const { return *precision_; }

  std::vector<std::int32_t> formats = std::vector<std::int32_t>(kPrompt + 4, 0);

 private:
  [[nodiscard]] Entries own(std::int64_t tokens) const {
    return layer_.entries(tokens).select_heads(1, 1);
  }

  const RandomLayer& layer_;
  std::unique_ptr<Precision> precision_;
  Groups groups_;
};

double max_of(const std::vector<double>& errors) {
  return *std::max_element(errors.begin(), errors.end());
}

TEST(LowRankKeys, TheRankOfTheKeysIsEnough) {
  const RandomLayer plain = low_rank_layer(false);
  const RandomLayer turned = low_rank_layer(true);
  const std::string three = R"("rank": 3, "keys": )";
  EXPECT_LT(max_of(LowRankDriver(three + R"("post_rope")", plain).key_errors()), 2e-3);
  EXPECT_LT(max_of(LowRankDriver(three + R"("pre_rope")", turned).key_errors()), 2e-3);
  // Rotation by position spreads the keys over more directions.
  EXPECT_GT(max_of(LowRankDriver(three + R"("post_rope")", turned).key_errors()), 0.1);
  EXPECT_GT(max_of(LowRankDriver(R"("rank": 2)", turned).key_errors()), 0.05);
}

TEST(LowRankKeys, FullRankIsExact) {
  const RandomLayer layer(kPrompt, 4);
  for (const char* keys : {"pre_rope", "post_rope"}) {
    EXPECT_LT(max_of(LowRankDriver(R"("rank": 32, "keys": ")" + std::string(keys) + "\"", layer)
                         .key_errors()),
              2e-3);
  }
}

TEST(LowRankKeys, OnlyGroupedTokensOfThePromptAreRebuilt) {
  const RandomLayer layer(kPrompt, 4);
  LowRankDriver driver(R"("rank": 2)", layer);
  const std::vector<double> errors = driver.key_errors();
  const std::vector<EntryFormat> formats = driver.precision().formats();
  for (std::size_t token = 0; token < kPrompt + 3; ++token) {
    const bool rebuilt = token >= 4 && token < 36;
    EXPECT_EQ(errors[token] > 0, rebuilt) << token;
    // One head's value is 16 elements of 2 bytes, and so is its key.
    EXPECT_EQ(formats[static_cast<std::size_t>(driver.formats[token])].entry_bytes(1, 16),
              rebuilt ? 32 : 64);
  }
}

TEST(LowRankKeys, CountsItsShareOfTheFactors) {
  const RandomLayer layer(kPrompt, 4);
  // 0.1 of 32 is rank 3: half of [40, 3], and [3, 16], of 2 bytes each.
  EXPECT_EQ(LowRankDriver(R"("rank_share": 0.1)", layer).precision().held_bytes(),
            2 * (40 * 3 / 2 + 3 * 16));
}

TEST(LowRankKeys, StreamsOfALayerHaveOneFactorisation) {
  const RandomLayer layer(kPrompt, 4);
  const std::string arguments = R"("rank": 2)";
  const std::vector<double> alone = LowRankDriver(arguments, layer).key_errors();
  std::shared_ptr<void> of_layer;
  LowRankDriver first(arguments, layer, &of_layer);
  LowRankDriver second(arguments, layer, &of_layer);
  EXPECT_EQ(of_layer.use_count(), 3);
  EXPECT_EQ(first.key_errors(), alone);
  EXPECT_EQ(second.key_errors(), alone);
}

TEST(LowRankKeys, NeedsAKnownRope) {
  EXPECT_THAT(user_error_of([] {
                (void)PartConfig<Precision>::by_name("low_rank_keys").make({StreamShape{}, 8});
              }),
              AllOf(HasSubstr("keys"), HasSubstr("pre_rope"), HasSubstr("post_rope")));
}

/// ShadowKV's parts on random vectors: a budget of all groups, and keys of full rank, is exact.
TEST(LowRankKeys, AWholeSystemAtFullRankIsFullAttention) {
  const RandomLayer layer(64, 6);
  const auto run = [&](const std::string& json) {
    std::vector<float> outputs;
    (void)replay_layer(layer, decide_spec(json), [&](std::int64_t, auto attention) {
      for (const HeadAttention& head : attention) {
        EXPECT_EQ(head.tokens.size(), head.tokens.back() + 1u);
        outputs.insert(outputs.end(), head.output.begin(), head.output.end());
      }
    });
    return outputs;
  };
  const std::vector<float> found = run(
      R"({"grouping": {"part": "chunks", "chunk_tokens": 4, "outlier_chunks": 2,
                       "local_chunks": 1},
          "scoring": {"part": "centroid", "heads": "max_softmax"},
          "selection": {"part": "top_groups", "budget_tokens": 1000},
          "precision": {"part": "low_rank_keys", "rank": 32, "keys": "post_rope"}})");
  const std::vector<float> exact = run(
      R"({"grouping": {"part": "whole"}, "scoring": {"part": "all"},
          "selection": {"part": "everything"}})");
  ASSERT_EQ(found.size(), exact.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], exact[i], 2e-3);
}

}  // namespace
}  // namespace kvreplay
