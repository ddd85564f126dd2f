#include "traces/rope.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <vector>

namespace kvreplay {
namespace {

/// Pairs (2i, 2i + 1), or (i, i + dim / 2), rotate by position * theta^(-2i / dim).
TEST(RotaryEmbedding, TurnsPairs) {
  const RotaryEmbedding half(100, false, 4);
  std::vector<float> row{1, 0, 0, 0};
  half.rotate(row, 2);
  EXPECT_NEAR(row[0], std::cos(2.0), 1e-6);
  EXPECT_NEAR(row[2], std::sin(2.0), 1e-6);
  const RotaryEmbedding interleaved(100, true, 4);
  row = {0, 0, 1, 0};
  interleaved.rotate(row, 2);
  EXPECT_NEAR(row[2], std::cos(0.2), 1e-6);
  EXPECT_NEAR(row[3], std::sin(0.2), 1e-6);
  interleaved.rotate(row, -2);
  EXPECT_NEAR(row[2], 1, 1e-6);
  EXPECT_NEAR(row[3], 0, 1e-6);
}

TEST(RotaryEmbedding, FactorsDivideTheFrequencies) {
  const std::array<float, 2> factors{1, 4};
  EXPECT_THAT(RotaryEmbedding(100, true, 4, factors).frequencies(),
              testing::ElementsAre(testing::DoubleEq(1), testing::DoubleEq(0.025)));
}

TEST(RotaryTable, TurnsAsTheEmbeddingDoes) {
  for (const bool interleaved : {false, true}) {
    const RotaryEmbedding embedding(10000, interleaved, 8);
    const RotaryTable table(embedding, 100);
    for (const std::int64_t position : {0, 1, 99}) {
      const std::vector<float> row{1, -2, 3, 0.5F, -0.25F, 4, 0, 1};
      std::vector<float> expected = row;
      embedding.rotate(expected, position);
      std::vector<float> turned = row;
      table.rotate(turned, position);
      EXPECT_THAT(turned, testing::Pointwise(testing::FloatNear(1e-6F), expected));
    }
  }
}

}  // namespace
}  // namespace kvreplay
