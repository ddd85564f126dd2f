#include "traces/synthesis/synthesise.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/build_info.hpp"
#include "base/hash.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"
#include "traces/operations/convert.hpp"
#include "traces/operations/cut.hpp"
#include "traces/operations/inspect.hpp"
#include "traces/synthesis/vector_model.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kShipped = source_folder() + "/traces/data/smollm2-135m-story-3k.kvtrace.h5";

class SynthesiseTest : public testing::Test {
 protected:
  SynthesiseTest() {
    cut_trace(TraceReader(kShipped), {.window_start = 2048, .decode_tokens = 64}, source_);
  }

  /// Writes the trace and checks every value.
  [[nodiscard]] TraceReader make(const SynthesisOptions& options, const std::string& name) const {
    const Synthesiser synthesiser(TraceReader(source_), options);
    synthesiser.write(folder_.file(name));
    TraceReader made(folder_.file(name));
    made.verify();
    return made;
  }
  TemporaryFolder folder_;
  std::string source_ =
      folder_.file("source.kvtrace.h5");  ///< 1,024 + 64 tokens of the shipped one
};

TEST(VectorModelTest, NearNormalHasMeanZeroAndVarianceOne) {
  Random random(5);
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = static_cast<double>(near_normal(random));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1, 0.01);
}

/// Fitting to data drawn from a model gives the model back.
TEST(VectorModelTest, FitsWhatItDraws) {
  VectorModel truth;
  truth.dim = 3;
  truth.means = {0, 0, 0, 10, -5, 2};
  truth.scales = {1, 0.5F};
  truth.factor = {2, 0, 0, 1, 1, 0, -1, 0.5F, 0.3F};
  truth.correlation = 0.6;
  Random random(7);
  NoiseWalk walk(truth);
  std::vector<float> rows;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 40000; ++i) {
    labels.push_back((i / 5) % 2);
    std::vector<float> row(truth.mean(labels.back()).begin(), truth.mean(labels.back()).end());
    walk.add(random, truth.correlation, truth.scale(labels.back()), row);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  const VectorModel found = fit_vectors({rows, 3}, labels, 2, 0);
  for (std::size_t i = 0; i < truth.means.size(); ++i) {
    EXPECT_NEAR(found.means[i], truth.means[i], 0.1) << i;
  }
  EXPECT_NEAR(found.scale(1) / found.scale(0), 0.5, 0.02);
  EXPECT_NEAR(found.correlation, 0.6, 0.02);
  // The covariance up to the scale that the clusters' share.
  const auto covariance = [](const VectorModel& model, std::size_t i, std::size_t j) {
    double sum = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      sum += static_cast<double>(model.factor[i * 3 + k] * model.factor[j * 3 + k]);
    }
    return sum;
  };
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const double unit = covariance(found, 0, 0) / covariance(truth, 0, 0);
      EXPECT_NEAR(covariance(found, i, j) / unit, covariance(truth, i, j), 0.1) << i << ' ' << j;
    }
  }
}

TEST_F(SynthesiseTest, EverySizeCanBeChosen) {
  const TraceReader made = make({.like_layers = {24},
                                 .layers = 3,
                                 .query_heads = 8,
                                 .kv_heads = 2,
                                 .head_dim = 80,
                                 .prompt_tokens = 1500,
                                 .decode_steps = 20,
                                 .dtype = "bf16",
                                 .query_window = 10},
                                "a.synthetic.kvtrace.h5");
  const TraceInfo& info = made.info();
  EXPECT_TRUE(made.synthetic());
  EXPECT_THAT(info.recorded_layers, ElementsAre(0, 1, 2));
  EXPECT_EQ(info.layers, 3);
  EXPECT_EQ(info.query_heads, 8);
  EXPECT_EQ(info.kv_heads, 2);
  EXPECT_EQ(info.head_dim, 80);
  EXPECT_EQ(info.tokens, 1520);
  EXPECT_EQ(info.dtype, "bf16");
  EXPECT_EQ(made.query_start(2), 1490);
  EXPECT_THAT(info.model, HasSubstr("synthetic"));
  EXPECT_THAT(info.text_source,
              AllOf(HasSubstr("synthetic"), HasSubstr(TraceReader(source_).content_hash())));
}

TEST_F(SynthesiseTest, SameBytesOnAnyNumberOfThreads) {
  const SynthesisOptions one{.like_layers = {12}, .prompt_tokens = 1200, .decode_steps = 8};
  SynthesisOptions five = one;
  five.threads = 5;
  SynthesisOptions another = one;
  another.seed = 2;
  const std::string first = sha256_file(make(one, "1.synthetic.kvtrace.h5").file());
  EXPECT_EQ(sha256_file(make(five, "5.synthetic.kvtrace.h5").file()), first);
  EXPECT_NE(sha256_file(make(another, "s.synthetic.kvtrace.h5").file()), first);
}

/// The report describes the written trace, where that has the recording's shape, and its heads
/// attend like the recorded ones.
TEST_F(SynthesiseTest, HeadsAttendAsRecorded) {
  const Synthesiser synthesiser(TraceReader(kShipped), {.threads = 2});
  const std::string file = folder_.file("a.synthetic.kvtrace.h5");
  synthesiser.write(file);
  const TraceReader made(file);
  const TraceInfo& info = made.info();
  for (const HeadFit& head : synthesiser.report().heads) {
    const std::int64_t index = head.layer == 12 ? 0 : 1;
    const TraceLayer layer = made.load_layer(index);
    const auto floats = [](const HalfTensor& tensor, std::int64_t of) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < tensor.tokens * tensor.dim; ++i) {
        values.push_back(to_float(tensor.head(of)[i]));
      }
      return values;
    };
    const std::vector<float> keys = floats(layer.keys, head.kv_head);
    const std::vector<float> queries = floats(layer.queries, head.query_head);
    const HeadStatistics written =
        measure_head({keys, info.head_dim}, {queries, info.head_dim},
                     {.positions = spread_positions(info.prompt_tokens, info.tokens,
                                                    synthesiser.report().measured_steps),
                      .query_start = layer.query_start,
                      .softmax_scale = info.softmax_scale});
    const HeadStatistics& recorded = head.recorded;
    const HeadStatistics& drawn = head.synthetic;
    EXPECT_NEAR(written.entropy_nats, drawn.entropy_nats, 0.01);
    EXPECT_NEAR(written.top_64_overlap, drawn.top_64_overlap, 0.01);
    EXPECT_NEAR(drawn.entropy_nats / recorded.entropy_nats, 1, 0.25) << head.query_head;
    EXPECT_NEAR(drawn.top_64_mass / recorded.top_64_mass, 1, 0.15) << head.query_head;
    EXPECT_NEAR(drawn.top_256_mass / recorded.top_256_mass, 1, 0.1) << head.query_head;
    EXPECT_NEAR(drawn.top_64_overlap, recorded.top_64_overlap, 0.12) << head.query_head;
    EXPECT_NEAR(drawn.first_16_mass, recorded.first_16_mass, 0.15) << head.query_head;
  }
}

/// At distances that the source never had, unscaled RoPE would leave no attention on sinks and
/// neighbours.
TEST_F(SynthesiseTest, ALongTextKeepsItsSinksAndItsNeighbourhood) {
  const std::string file = folder_.file("long.synthetic.kvtrace.h5");
  const Synthesiser synthesiser(TraceReader(kShipped),
                                {.like_layers = {12}, .prompt_tokens = 16368, .decode_steps = 16});
  synthesiser.write(file);
  const TraceReader made(file);
  EXPECT_GT(made.info().rope_theta, TraceReader(kShipped).info().rope_theta);
  const AttentionSummary attention = summarise(made).layers[0].attention.value();
  EXPECT_GT(attention.first_16_mass, 0.15);
  EXPECT_GT(attention.last_64_mass, 0.3);
}

/// Drift and splits act: without them the same clusters give other keys, and no drift is reported.
TEST_F(SynthesiseTest, ClustersMoveAndSplit) {
  SynthesisOptions still{.like_layers = {24},
                         .prompt_tokens = 2000,
                         .decode_steps = 4,
                         .clusters = 12,
                         .drift = 0,
                         .splits_per_1000_tokens = 0};
  SynthesisOptions drifting = still;
  drifting.drift = 1;
  SynthesisOptions splitting = still;
  splitting.splits_per_1000_tokens = 20;
  const Synthesiser one(TraceReader(source_), still);
  const Synthesiser two(TraceReader(source_), drifting);
  EXPECT_EQ(one.report().keys[0].clusters, 12);
  EXPECT_EQ(one.report().keys[0].drift_share, 0);
  EXPECT_GT(two.report().keys[0].drift_share, 0.01);
  one.write(folder_.file("1.synthetic.kvtrace.h5"));
  two.write(folder_.file("2.synthetic.kvtrace.h5"));
  const std::string of_still = sha256_file(folder_.file("1.synthetic.kvtrace.h5"));
  EXPECT_NE(sha256_file(folder_.file("2.synthetic.kvtrace.h5")), of_still);
  EXPECT_NE(sha256_file(make(splitting, "3.synthetic.kvtrace.h5").file()), of_still);
}

TEST_F(SynthesiseTest, LearnsFromKeysBeforeRopeToo) {
  const std::string cut = folder_.file("bare.kvtrace.h5");
  const SynthesisOptions options{.like_layers = {12}, .prompt_tokens = 300, .decode_steps = 4};
  const Synthesiser synthesiser(TraceReader(source_), options);
  synthesiser.write(cut);  // a synthetic trace has no adapters, which would keep their state
  convert_trace(TraceReader(cut), {.key_state = "pre_rope"}, folder_.file("pre.kvtrace.h5"));
  const Synthesiser after(TraceReader(cut), {});
  const Synthesiser before(TraceReader(folder_.file("pre.kvtrace.h5")), {});
  for (std::size_t i = 0; i < after.report().heads.size(); ++i) {
    EXPECT_NEAR(after.report().heads[i].recorded.entropy_nats,
                before.report().heads[i].recorded.entropy_nats, 0.02);
  }
}

TEST_F(SynthesiseTest, WhatCannotBeMade) {
  const auto error = [](const SynthesisOptions& options) {
    return user_error_of([&] { const Synthesiser made(TraceReader(kShipped), options); });
  };
  EXPECT_THAT(error({.like_layers = {13}}), AllOf(HasSubstr("13"), HasSubstr("12, 24")));
  EXPECT_THAT(error({.query_heads = 7}), AllOf(HasSubstr("query_heads"), HasSubstr("7")));
  EXPECT_THAT(error({.head_dim = 63}), AllOf(HasSubstr("head_dim"), HasSubstr("even")));
  EXPECT_THAT(error({.prompt_tokens = 0}), HasSubstr("prompt"));
  EXPECT_THAT(error({.dtype = "f64"}), HasSubstr("bf16"));
}

}  // namespace
}  // namespace kvreplay
