#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "policies/kernels/kernels.hpp"
#include "tests/support/scored_groups.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNoSum = -std::numeric_limits<double>::infinity();

/// The best token of a group by `logit(token)`.
template <typename Logit>
double best_of(const Groups& groups, GroupId group, Logit logit) {
  double best = kNoSum;
  for (const Token token : groups.members(group)) best = std::max(best, logit(token));
  return best;
}

TEST(ProductQuantisation, ACentroidForEachKeyIsExact) {
  const RandomLayer layer(40, 8);
  ScoredGroups scored(
      R"({"part": "product_quantisation", "code_bits": 6, "heads": "per_query_head"})", layer);
  scored.add_prompt();
  scored.create_varied();
  const Scores scores = scored.score();
  ASSERT_EQ(scores.rows, 6);
  for (std::int64_t head = 0; head < 6; ++head) {
    for (GroupId group = 0; group < scored.groups.count(); ++group) {
      const double best =
          best_of(scored.groups, group, [&](Token token) { return layer.logit(head, 40, token); });
      const double found = scores.row(head)[static_cast<std::size_t>(group)];
      if (best == kNoSum) {
        EXPECT_EQ(found, kNoSum);
      } else {
        EXPECT_NEAR(found, best, 1e-3);
      }
    }
  }
}

/// Tokens after the prompt also have codes, from the prompt's centroids.
TEST(ProductQuantisation, MatchesItsFormula) {
  const RandomLayer layer(32, 16);
  constexpr std::int64_t kDim = 8;  // of a sub-space
  constexpr std::int64_t kCentroids = 4;
  ScoredGroups scored(
      R"({"part": "product_quantisation", "code_bits": 2, "heads": "per_query_head"})", layer);
  scored.add_prompt();
  for (Token token = 0; token < 40; ++token) scored.create(token, token + 1);
  const Scores scores = scored.score();
  const std::vector<float> query = layer.query(40);

  for (std::int64_t head = 0; head < 6; ++head) {
    std::vector<double> logits(40, 0);
    for (std::int64_t sub = 0; sub < 2; ++sub) {
      const std::int64_t book = head / 3 * 2 + sub;
      std::vector<Half> rows;
      for (std::int64_t token = 0; token < 40; ++token) {
        const Half* key = layer.entries(40).keys.row(head / 3, token) + sub * kDim;
        rows.insert(rows.end(), key, key + kDim);
      }
      std::vector<float> centroids(kCentroids * kDim);
      std::vector<std::int32_t> labels(32);
      kernels::k_means(rows.data(), 32, kDim,
                       {.metric = kernels::Metric::kEuclidean,
                        .clusters = kCentroids,
                        .max_iterations = 25,
                        .stop_when_stable = true,
                        .seed = Random::derive(1, static_cast<std::uint64_t>(book))},
                       centroids, labels);
      for (std::size_t token = 0; token < 40; ++token) {
        std::size_t nearest = 0;
        double min_distance = std::numeric_limits<double>::infinity();
        for (std::size_t c = 0; c < kCentroids; ++c) {
          double distance = 0;
          for (std::size_t i = 0; i < kDim; ++i) {
            const double difference = static_cast<double>(to_float(rows[token * kDim + i])) -
                                      static_cast<double>(centroids[c * kDim + i]);
            distance += difference * difference;
          }
          if (distance < min_distance) {
            min_distance = distance;
            nearest = c;
          }
        }
        for (std::size_t i = 0; i < kDim; ++i) {
          logits[token] +=
              static_cast<double>(query[static_cast<std::size_t>(head * 16 + sub * kDim) + i]) *
              static_cast<double>(centroids[nearest * kDim + i]);
        }
      }
    }
    for (std::size_t token = 0; token < 40; ++token) {
      EXPECT_NEAR(static_cast<double>(scores.row(head)[token]), logits[token], 1e-3);
    }
  }
  // 40 tokens of 2 heads with two codes of 2 bits; 4 centroids of 16 elements for each head.
  EXPECT_EQ(scored.cost().held_bytes, 40 * 2 * 2 * 2 / 8 + 2 * 4 * 16 * 2);
  EXPECT_EQ(scored.cost().flops, 6 * (2 * 4 * 16 + 40 * 2));
}

TEST(ProductQuantisation, SinksTrainNoCentroid) {
  const DecideSpec spec = decide_spec(
      R"({"stream": {"sink_tokens": 1},
          "grouping": {"part": "token"},
          "scoring": {"part": "product_quantisation", "code_bits": 1},
          "selection": {"part": "top_groups", "budget_tokens": 4}})");
  const auto attended = [&](float sink_element) {
    RandomLayer layer(40, 8);
    for (std::int64_t kv = 0; kv < 2; ++kv) {
      std::fill_n(layer.keys.begin() + kv * 48 * 16, 16, to_half(sink_element));
    }
    return replay_layer(layer, spec).streams[0].attended;
  };
  // A far key among the training keys would have a centroid of its own.
  EXPECT_EQ(attended(1000), attended(0));
}

TEST(ProductQuantisation, RefusesUnevenSubspaces) {
  const RandomLayer layer(40, 8);
  EXPECT_THAT(user_error_of([&] {
                ScoredGroups(R"({"part": "product_quantisation", "subspaces": 3})", layer);
              }),
              AllOf(HasSubstr("subspaces"), HasSubstr("found 3"), HasSubstr("divisor of 16")));
}

}  // namespace
}  // namespace kvreplay
