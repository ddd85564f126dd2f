#include "traces/operations/diff.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_folder.hpp"
#include "tests/traces/raw_trace.hpp"

namespace kvreplay {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

class DiffTest : public testing::Test {
 protected:
  DiffTest() { raw_.write(first_); }

  [[nodiscard]] TraceDifference diff() {
    raw_.write(second_);
    return diff_traces(TraceReader(first_), TraceReader(second_));
  }

  TemporaryFolder folder_;
  std::string first_ = folder_.file("a.kvtrace.h5");
  std::string second_ = folder_.file("b.kvtrace.h5");
  RawTrace raw_;
};

TEST_F(DiffTest, SameTrace) {
  const TraceDifference found = diff();
  EXPECT_TRUE(found.same());
  // Four token data sets, four of each of two layers.
  EXPECT_EQ(found.values.size(), 12U);
  EXPECT_EQ(to_text(found), "12 of 12 data sets are equal\n");
}

TEST_F(DiffTest, OneValue) {
  auto& values = std::get<std::vector<Half>>(raw_.datasets["/layer/03/value"].values);
  double squares = 0;
  for (const Half value : values) squares += std::pow(to_float(value), 2);
  values[100] = to_half(to_float(values[100]) + 0.5F);
  const TraceDifference found = diff();
  EXPECT_FALSE(found.same());
  for (const ValueDifference& set : found.values) {
    const bool changed = set.path == "/layer/03/value";
    EXPECT_DOUBLE_EQ(set.max, changed ? 0.5 : 0) << set.path;
    EXPECT_NEAR(set.relative, changed ? 0.5 / std::sqrt(squares) : 0, 1e-12) << set.path;
  }
  EXPECT_THAT(to_text(found), HasSubstr("/layer/03/value: largest difference 0.5"));
}

TEST_F(DiffTest, AttentionInput) {
  raw_.add_attention_inputs();
  raw_.write(first_);
  auto& values = std::get<std::vector<Half>>(raw_.datasets["/layer/01/attention_input"].values);
  values[77] = to_half(to_float(values[77]) + 0.25F);
  raw_.datasets.erase("/layer/03/attention_input");
  const std::string text = to_text(diff());
  EXPECT_THAT(text, HasSubstr("/layer/01/attention_input: largest difference 0.25"));
  EXPECT_THAT(text, HasSubstr("/layer/03/attention_input: [1, 12, 48] | none"));
  EXPECT_THAT(text, EndsWith("12 of 13 data sets are equal; not compared: "
                             "/layer/03/attention_input\n"));
}

TEST_F(DiffTest, OutputWeights) {
  raw_.add_output_weights();
  raw_.write(first_);
  std::get<std::vector<float>>(raw_.datasets["/layer/01/residual_norm"].values)[3] += 0.5F;
  raw_.datasets.erase("/layer/03/residual_norm");
  raw_.datasets.erase("/layer/03/output_sketch");
  const std::string text = to_text(diff());
  EXPECT_THAT(text, HasSubstr("/layer/01/residual_norm: largest difference 0.5"));
  EXPECT_THAT(text, HasSubstr("/layer/03/residual_norm: 12 values | none"));
  EXPECT_THAT(text, HasSubstr("/layer/03/output_sketch: 96 values | none"));
}

TEST_F(DiffTest, AttributesShapesAndPresence) {
  raw_.attributes["model"] = std::string("another\x1b[31m");
  raw_.attributes["rope_theta"] = 500000.0;
  raw_.datasets.erase("/layer/01/query_ahead");
  raw_.datasets["/adapter/03/joint_lowrank"] = {std::vector<float>(64, 1), {16, 4}, {}, {}};
  const std::string text = to_text(diff());
  EXPECT_THAT(text, HasSubstr("/ model: 'synthetic' | 'another\\x1b[31m'\n"));
  EXPECT_THAT(text, HasSubstr("/ rope_theta: 10000 | 500000\n"));
  EXPECT_THAT(text, HasSubstr("/layer/01/query_ahead: [6, 12, 8] | none\n"));
  EXPECT_THAT(text, HasSubstr("/adapter/03/joint_lowrank: none | [16, 4]\n"));
}

TEST_F(DiffTest, OnlyCommonLayers) {
  raw_.attributes["recorded_layers"] = std::vector<std::int64_t>{3};
  raw_.attributes["sliding_window"] = std::vector<std::int64_t>{0};
  const TraceDifference found = diff();
  EXPECT_EQ(found.values.size(), 8U);
  EXPECT_EQ(found.texts.size(), 3U);
  EXPECT_THAT(to_text(found), HasSubstr("/layer/01: held | none\n"));
  EXPECT_THAT(to_text(found), EndsWith("8 of 8 data sets are equal; not compared: /layer/01\n"));
  const TraceDifference back = diff_traces(TraceReader(second_), TraceReader(first_));
  EXPECT_FALSE(back.same());
  EXPECT_THAT(to_text(back), HasSubstr("/layer/01: none | held\n"));
  EXPECT_THAT(to_text(back), EndsWith("; not compared: /layer/01\n"));
}

TEST_F(DiffTest, ManyThatAreNotComparedAreCounted) {
  RawTrace many = raw_;
  for (int i = 10; i < 20; ++i) {
    many.datasets["/adapter/03/a" + std::to_string(i)] = {std::vector<float>(4, 1), {4}, {}, {}};
  }
  many.write(first_);
  EXPECT_THAT(to_text(diff()), EndsWith("/adapter/03/a16, and 3 more\n"));
}

}  // namespace
}  // namespace kvreplay
