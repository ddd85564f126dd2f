#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/scored_groups.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kKeyDim = 16;

/// Keys of both KV heads, 6 query heads, 40 tokens of prompt.
class QuantisedKeysTest : public ::testing::Test {
 protected:
  using Logit = std::function<double(std::int64_t head, Token token)>;

  /// Every live group of each query head scores its best token by `logit`.
  void expect_scores(const std::string& json, const Logit& logit, double tolerance) {
    ScoredGroups scored(json, layer_);
    scored.add_prompt();
    scored.create_varied();
    const Scores scores = scored.score();
    ASSERT_EQ(scores.rows, 6);
    ASSERT_EQ(scores.groups, scored.groups.count());
    for (std::int64_t head = 0; head < 6; ++head) {
      for (GroupId group = 0; group < scores.groups; ++group) {
        double best = -std::numeric_limits<double>::infinity();
        for (const Token token : scored.groups.members(group)) {
          best = std::max(best, logit(head, token));
        }
        const double found = scores.row(head)[static_cast<std::size_t>(group)];
        if (scored.groups.live(group)) {
          EXPECT_NEAR(found, best, tolerance) << head << " " << group;
        } else {
          EXPECT_EQ(found, best);
        }
      }
    }
  }

  [[nodiscard]] double key(std::int64_t kv, Token token, std::int64_t i) const {
    return static_cast<double>(to_float(layer_.entries(40).keys.row(kv, token)[i]));
  }
  [[nodiscard]] double query(std::int64_t head, std::int64_t i) const {
    return static_cast<double>(layer_.query(40)[static_cast<std::size_t>(head * kKeyDim + i)]);
  }
  /// The formula in double precision, but for what is stored as a half.
  [[nodiscard]] double coded_logit(std::int64_t head, Token token, double most) const {
    const auto as_half = [](double x) {
      return static_cast<double>(to_float(to_half(static_cast<float>(x))));
    };
    std::vector<double> row;
    std::vector<double> stretched;
    double sum = 0;
    for (std::int64_t i = 0; i < kKeyDim; ++i) {
      double mean = 0;
      double square = 0;
      for (Token t = 0; t < 40; ++t) {
        mean += key(head / 3, t, i) / 40;
        square += key(head / 3, t, i) * key(head / 3, t, i) / 40;
      }
      const double spread = as_half(std::sqrt(square - mean * mean));
      row.push_back((key(head / 3, token, i) - as_half(mean)) / spread);
      stretched.push_back(query(head, i) * spread);
      sum += query(head, i) * as_half(mean);
    }
    const auto largest = [](const std::vector<double>& of) {
      double most_of = 0;
      for (const double x : of) most_of = std::max(most_of, std::abs(x));
      return most_of;
    };
    const double scale = as_half(largest(row) / most);
    const double query_scale = largest(stretched) / 127;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double code = std::clamp(std::nearbyint(row[i] / scale), -most, most);
      sum += code * scale * std::nearbyint(stretched[i] / query_scale) * query_scale;
    }
    return sum;
  }

  RandomLayer layer_{40, 8};
};

TEST_F(QuantisedKeysTest, MatchesItsFormula) {
  expect_scores(R"({"part": "quantised_keys"})",
                [&](std::int64_t head, Token token) { return coded_logit(head, token, 127); },
                1e-4);
  expect_scores(R"({"part": "quantised_keys", "bits": 4})",
                [&](std::int64_t head, Token token) { return coded_logit(head, token, 7); }, 1e-4);
}

TEST_F(QuantisedKeysTest, EightBitsAreNearTheTrueLogit) {
  expect_scores(R"({"part": "quantised_keys", "bits": 8})",
                [&](std::int64_t head, Token token) { return layer_.logit(head, 40, token); },
                0.05);
}

/// Channel 5 lies a hundred spreads from zero, as a bias does that the model adds to its keys.
TEST_F(QuantisedKeysTest, AChannelFarFromZeroTakesNoRange) {
  for (std::size_t i = 5; i < layer_.keys.size(); i += kKeyDim) {
    layer_.keys[i] = to_half(to_float(layer_.keys[i]) + 60);
  }
  // A key is recorded with steps of 1/32 there, and so are its logits.
  expect_scores(R"({"part": "quantised_keys", "bits": 8})",
                [&](std::int64_t head, Token token) { return layer_.logit(head, 40, token); }, 0.2);
}

TEST_F(QuantisedKeysTest, CountsCodesScalesAndChannels) {
  for (const std::int64_t bits : {8, 4}) {
    ScoredGroups scored(R"({"part": "quantised_keys", "bits": )" + std::to_string(bits) + "}",
                        layer_);
    scored.add_prompt();
    scored.create_varied();
    static_cast<void>(scored.score());
    // 29 tokens are in groups, of 2 KV heads with 16 elements and a scale of 2 bytes each.
    EXPECT_EQ(scored.groups.grouped_tokens(), 29);
    EXPECT_EQ(scored.cost().fixed_bytes, 2 * 2 * 2 * 16);
    EXPECT_EQ(scored.cost().held_bytes, 29 * 2 * (16 * bits / 8 + 2) + 2 * 2 * 2 * 16);
    EXPECT_EQ(scored.cost().read_bytes, scored.cost().held_bytes);
    EXPECT_EQ(scored.cost().flops, 6 * 16 * (2 * 29 + 3));
  }
}

/// A larger head has one scale, too: half as many bytes per element where heads are twice as large.
TEST_F(QuantisedKeysTest, AHeadHasOneScaleWhateverItsSize) {
  RandomLayer larger(40, 8);
  larger.shape.model_heads = {2, 2 * kKeyDim};
  ScoredGroups scored(R"({"part": "quantised_keys"})", larger);
  scored.add_prompt();
  scored.create_varied();
  static_cast<void>(scored.score());
  EXPECT_EQ(scored.cost().held_bytes, 29 * 2 * (16 + 1) + 2 * 2 * 2 * 16);
}

TEST_F(QuantisedKeysTest, RefusesOtherWidths) {
  EXPECT_THAT(
      user_error_of([&] { ScoredGroups(R"({"part": "quantised_keys", "bits": 6})", layer_); }),
      AllOf(HasSubstr("bits"), HasSubstr("found 6"), HasSubstr("8 or 4")));
}

}  // namespace
}  // namespace kvreplay
