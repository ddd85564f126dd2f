#include "sim/models/transformer.hpp"

#include <gmock/gmock.h>

#include <numeric>
#include <stdexcept>

#include "sim/models/full_attention.hpp"
#include "sim/models/next_token.hpp"
#include "tests/support/random_model.hpp"
#include "tests/support/temporary_folder.hpp"
#include "traces/rope.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kTokens = 150;

std::vector<float> random_row(std::int64_t size, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> row(static_cast<std::size_t>(size));
  for (float& value : row) value = static_cast<float>(2 * random.uniform() - 1);
  return row;
}

class RandomTransformer : public testing::TestWithParam<std::string> {
 protected:
  static Model make(const std::string& kind) {
    static const TemporaryFolder folder;
    const std::string file = folder.file(kind + ".kvmodel");
    const bool gemma = kind.starts_with("gemma");
    write_random_model(file, {.rope_pairs = kind == "interleaved" ? kind : "half",
                              .gemma = gemma,
                              .integer_bits = kind.ends_with("int8")   ? 8
                                              : kind.ends_with("int4") ? 4
                                                                       : 0});
    return Model(file);
  }

  /// Logits of every position, run in batches of `chunk` positions.
  static std::vector<float> run(const Model& model, std::int64_t chunk, int threads) {
    WorkerPool pool(threads);
    Transformer transformer(model, kTokens, pool);
    FullAttention attention(model.architecture(), kTokens, pool);
    std::vector<std::int32_t> ids;
    Random random(4);
    for (std::int64_t i = 0; i < kTokens; ++i) {
      ids.push_back(static_cast<std::int32_t>(random.below(101)));
    }
    std::vector<std::int64_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<float> all;
    for (std::int64_t begin = 0; begin < kTokens; begin += chunk) {
      const auto first = static_cast<std::size_t>(begin);
      const auto count = static_cast<std::size_t>(std::min(chunk, kTokens - begin));
      const auto logits = transformer.logits(
          transformer.run(std::span(ids).subspan(first, count),
                          std::span(positions).subspan(first, count), attention));
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  const Model model_ = make(GetParam());
};

TEST_P(RandomTransformer, BatchesAndThreadsDoNotChangeABit) {
  const std::vector<float> once = run(model_, kTokens, 1);
  EXPECT_THAT(once, testing::Each(testing::Truly([](float x) { return std::isfinite(x); })));
  for (const std::int64_t chunk : {1, 7, 64}) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(testing::Message() << chunk << " positions, " << threads << " threads");
      EXPECT_EQ(run(model_, chunk, threads), once);
    }
  }
}

TEST_P(RandomTransformer, RopeIsTheDefinition) {
  WorkerPool pool(1);
  const Transformer transformer(model_, kTokens, pool);
  const RotaryEmbedding rope(10000, GetParam() == "interleaved", 16);
  for (const std::int64_t position : {std::int64_t{0}, std::int64_t{1}, kTokens - 1}) {
    const std::vector<float> before = random_row(16, 7);
    std::vector<float> turned = before;
    transformer.rotate(turned, 0, position);
    if (position == 0) {
      EXPECT_EQ(turned, before);
    } else {
      EXPECT_NE(turned, before);
    }
    std::vector<float> expected = before;
    rope.rotate(expected, position);
    EXPECT_THAT(turned, testing::Pointwise(testing::FloatNear(1e-6F), expected));
    rope.rotate(turned, -position);
    EXPECT_THAT(turned, testing::Pointwise(testing::FloatNear(1e-6F), before));
  }
}

TEST_P(RandomTransformer, RopeMakesScoresDependOnDistanceAlone) {
  WorkerPool pool(1);
  const Transformer transformer(model_, kTokens, pool);
  const auto score = [&](std::int64_t query_position, std::int64_t key_position) {
    std::vector<float> query = random_row(16, 8);
    std::vector<float> key = random_row(16, 9);
    transformer.rotate(query, 0, query_position);
    transformer.rotate(key, 0, key_position);
    return std::inner_product(query.begin(), query.end(), key.begin(), 0.0F);
  };
  EXPECT_NEAR(score(30, 10), score(140, 120), 1e-5);
  EXPECT_GT(std::abs(score(30, 10) - score(30, 11)), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RandomTransformer,
                         testing::Values("half", "interleaved", "gemma", "half_int8", "gemma_int4"),
                         [](const auto& test) { return test.param; });

/// Logits beside products in double precision; the row's rounding to 8 bits is what separates them.
TEST(Transformer, IntegersAreTheWeightsOfLoadRow) {
  const TemporaryFolder folder;
  for (const int bits : {8, 4}) {
    const std::string file = folder.file(std::to_string(bits) + ".kvmodel");
    write_random_model(file, {.integer_bits = bits});
    const Model model(file);
    EXPECT_EQ(model.output().weight_bits(), bits + 0.5);
    const std::int64_t inputs = model.output().inputs;
    WorkerPool pool(1);
    Transformer transformer(model, kTokens, pool);
    const std::vector<float> hidden = random_row(inputs, 3);
    const std::span<const float> logits = transformer.logits(hidden);
    std::vector<float> weights(hidden.size());
    for (std::int64_t output = 0; output < model.output().outputs; ++output) {
      model.output().load_row(output, weights);
      double expected = 0;
      double bound = 0;
      for (std::size_t i = 0; i < hidden.size(); ++i) {
        expected += double{weights[i]} * double{hidden[i]};
        bound += std::abs(double{weights[i]}) / 254;  // half a step of a row within -1 ... 1
      }
      EXPECT_NEAR(logits[static_cast<std::size_t>(output)], expected, bound + 1e-5) << output;
    }
  }
}

TEST(Transformer, LayersHaveBasesOfTheirOwn) {
  const TemporaryFolder folder;
  write_random_model(folder.file("gemma.kvmodel"), {.gemma = true});
  const Model model(folder.file("gemma.kvmodel"));
  WorkerPool pool(1);
  const Transformer transformer(model, kTokens, pool);
  const auto turned = [&](std::int64_t layer) {
    std::vector<float> row = random_row(16, 7);
    transformer.rotate(row, layer, kTokens - 1);
    return row;
  };
  EXPECT_EQ(turned(0), turned(2));
  EXPECT_NE(turned(0), turned(1));
  std::vector<float> expected = random_row(16, 7);
  RotaryEmbedding(500000, false, 16).rotate(expected, kTokens - 1);
  EXPECT_THAT(turned(1), testing::Pointwise(testing::FloatNear(1e-6F), expected));
}

/// The content of a token beyond the window changes no output within it.
TEST(FullAttention, SeesTheWindowAlone) {
  const TemporaryFolder folder;
  write_random_model(folder.file("gemma.kvmodel"), {.gemma = true});
  const Model model(folder.file("gemma.kvmodel"));
  const Architecture& a = model.architecture();
  WorkerPool pool(1);
  const auto last_outputs = [&](std::int64_t layer, std::int64_t other_token) {
    FullAttention attention(a, kTokens, pool);
    std::vector<float> outputs;
    for (std::int64_t position = 0; position < kTokens; ++position) {
      const auto seed = static_cast<std::uint64_t>(position == other_token ? 1000 : position);
      const std::vector<float> queries = random_row(a.query_size(), 5000 + seed);
      const std::vector<float> keys = random_row(a.kv_size(), 6000 + seed);
      const std::vector<float> values = random_row(a.kv_size(), 7000 + seed);
      const std::vector<std::int64_t> positions{position};
      outputs.resize(queries.size());
      attention.attend({.layer = layer,
                        .rows = 1,
                        .positions = positions,
                        .queries = queries.data(),
                        .keys = keys.data(),
                        .values = values.data()},
                       outputs.data());
    }
    return outputs;
  };
  for (const auto& [layer, window] : {std::pair{0, 20}, {2, 33}}) {
    SCOPED_TRACE(layer);
    const std::vector<float> outputs = last_outputs(layer, -1);
    EXPECT_EQ(last_outputs(layer, kTokens - 1 - window), outputs);
    EXPECT_NE(last_outputs(layer, kTokens - window), outputs);
  }
  EXPECT_NE(last_outputs(1, 0), last_outputs(1, -1));
}

TEST(NextToken, StatisticsOfADistribution) {
  std::vector<float> scratch;
  const std::vector<float> logits{std::log(0.5F) + 3, std::log(0.25F) + 3, std::log(0.25F) + 3};
  const NextToken next = next_token(logits, scratch);
  EXPECT_NEAR(next.entropy, 1.5 * std::log(2.0), 1e-6);
  EXPECT_NEAR(next.top_probability, 0.5, 1e-6);
  EXPECT_NEAR(next.log_sum, 3, 1e-6);
  EXPECT_EQ(likeliest(logits), 0);
  EXPECT_EQ(likeliest(std::vector<float>{1, 2, 2}), 1);
}

TEST(Sampler, DrawsByProbabilityWithinTheNucleus) {
  const std::vector<float> logits{std::log(0.1F), std::log(0.6F), std::log(0.3F)};
  const auto draw = [&](double temperature, double top_p, std::uint64_t seed) {
    Sampler sampler({temperature, top_p, seed});
    std::vector<int> counts(3);
    for (int i = 0; i < 20000; ++i) ++counts[static_cast<std::size_t>(sampler.draw(logits))];
    return counts;
  };
  EXPECT_THAT(draw(0, 1, 1), testing::ElementsAre(0, 20000, 0));
  const std::vector<int> all = draw(1, 1, 1);
  EXPECT_NEAR(all[0] / 20000.0, 0.1, 0.01);
  EXPECT_NEAR(all[1] / 20000.0, 0.6, 0.015);
  const std::vector<int> nucleus = draw(1, 0.8, 1);
  EXPECT_EQ(nucleus[0], 0);
  EXPECT_NEAR(nucleus[1] / 20000.0, 2.0 / 3, 0.015);
  EXPECT_EQ(draw(1, 1e-9, 1)[1], 20000);
  EXPECT_EQ(draw(1, 1, 5), draw(1, 1, 5));
  EXPECT_NE(draw(1, 1, 5), draw(1, 1, 6));
}

}  // namespace
}  // namespace kvreplay
