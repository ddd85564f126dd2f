#include "traces/operations/convert.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include "base/hash.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"
#include "tests/traces/raw_trace.hpp"
#include "traces/operations/cut.hpp"
#include "traces/operations/diff.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ConvertTest : public testing::Test {
 protected:
  ConvertTest() { write_synthetic_trace(source_, {.prompt = 60, .decode = 8}); }

  [[nodiscard]] TraceReader convert(const std::string& from, const ConvertOptions& options,
                                    const std::string& name) const {
    convert_trace(TraceReader(from), options, folder_.file(name));
    TraceReader made(folder_.file(name));
    made.verify();
    return made;
  }

  TemporaryFolder folder_;
  std::string source_ = folder_.file("source.kvtrace.h5");
};

/// The largest relative difference of any data set.
double farthest(const TraceReader& a, const TraceReader& b) {
  double max = 0;
  for (const ValueDifference& set : diff_traces(a, b).values) max = std::max(max, set.relative);
  return max;
}

TEST_F(ConvertTest, NothingChangedIsTheSameTrace) {
  const TraceReader made = convert(source_, {}, "same.kvtrace.h5");
  EXPECT_TRUE(diff_traces(TraceReader(source_), made).same());
}

TEST_F(ConvertTest, ArchivedAndBackAreTheSameBytes) {
  const TraceReader archived =
      convert(source_, {.storage = TraceWriter::Storage::kArchive}, "archive.kvtrace.h5");
  EXPECT_TRUE(diff_traces(TraceReader(source_), archived).same());
  (void)convert(source_, {}, "mapped.kvtrace.h5");
  (void)convert(archived.file(), {}, "back.kvtrace.h5");
  EXPECT_EQ(sha256_file(folder_.file("mapped.kvtrace.h5")),
            sha256_file(folder_.file("back.kvtrace.h5")));
  EXPECT_NE(sha256_file(archived.file()), sha256_file(folder_.file("back.kvtrace.h5")));
}

TEST_F(ConvertTest, Bfloat16KeepsEightBits) {
  const TraceReader brain = convert(source_, {.dtype = "bf16"}, "brain.kvtrace.h5");
  EXPECT_EQ(brain.info().dtype, "bf16");
  const double error = farthest(TraceReader(source_), brain);
  EXPECT_GT(error, 1e-4);
  EXPECT_LT(error, 1.0 / 256);
  // What bf16 holds, f16 holds too.
  const TraceReader back = convert(brain.file(), {.dtype = "f16"}, "back.kvtrace.h5");
  EXPECT_EQ(farthest(brain, back), 0);
  const TraceReader again = convert(back.file(), {.dtype = "bf16"}, "again.kvtrace.h5");
  EXPECT_TRUE(diff_traces(brain, again).same());
}

TEST_F(ConvertTest, RopeTurnsPairsByPosition) {
  // Two dimensions that rotate by one radian per position: the formula by hand, for both ways of
  // pairing.
  for (const char* pairs : {"half", "interleaved"}) {
    RawTrace raw;
    raw.attributes["key_state"] = std::string("pre_rope");
    raw.attributes["rope_pairs"] = std::string(pairs);
    raw.write(source_);
    const TraceReader source(source_);
    const TraceReader made = convert(source_, {.key_state = "post_rope"}, "turned.kvtrace.h5");
    EXPECT_EQ(made.info().key_state, "post_rope");
    const TraceLayer before = source.load_layer(1);
    const TraceLayer after = made.load_layer(1);
    const auto expect_turned = [&](const HalfTensor& a, const HalfTensor& b, std::int64_t start) {
      for (std::int64_t head = 0; head < a.heads; ++head) {
        for (std::int64_t token = 0; token < a.tokens; ++token) {
          for (std::int64_t pair = 0; pair < 4; ++pair) {
            const bool half = std::string(pairs) == "half";
            const std::int64_t i = half ? pair : 2 * pair;
            const std::int64_t j = half ? pair + 4 : 2 * pair + 1;
            const double angle = static_cast<double>(start + token) *
                                 std::pow(10000.0, -static_cast<double>(pair) / 4);
            const double x = to_float(a.row(head, token)[i]);
            const double y = to_float(a.row(head, token)[j]);
            EXPECT_NEAR(to_float(b.row(head, token)[i]), x * std::cos(angle) - y * std::sin(angle),
                        4e-3);
            EXPECT_NEAR(to_float(b.row(head, token)[j]), x * std::sin(angle) + y * std::cos(angle),
                        4e-3);
          }
        }
      }
    };
    expect_turned(before.keys, after.keys, 0);
    expect_turned(before.queries, after.queries, before.query_start);
    expect_turned(before.queries_ahead, after.queries_ahead, before.query_start);
    EXPECT_EQ(before.values.row(1, 5)[3], after.values.row(1, 5)[3]);
  }
}

TEST_F(ConvertTest, RopeByLayer) {
  // Layer 1 has a base of its own, layer 3 none.
  RawTrace raw;
  raw.write(source_);
  const TraceReader plain = convert(source_, {.key_state = "pre_rope"}, "plain.kvtrace.h5");
  raw.attributes["rope_theta"] = 500.0;
  raw.attributes["rope_scaling"] = std::string("by layer");
  raw.attributes["layer_rope_theta"] = std::vector<double>{10000, 0};
  raw.write(source_);
  const TraceReader off = convert(source_, {.key_state = "pre_rope"}, "off.kvtrace.h5");
  EXPECT_EQ(off.info().layer_rope_theta, (std::vector<double>{10000, 0}));
  std::map<std::string, double> relative;
  for (const ValueDifference& set : diff_traces(plain, off).values) {
    relative[set.path] = set.relative;
  }
  EXPECT_EQ(relative.at("/layer/01/key"), 0);
  EXPECT_GT(relative.at("/layer/03/key"), 0.1);
  for (const ValueDifference& set : diff_traces(TraceReader(source_), off).values) {
    if (!set.path.starts_with("/layer/03/")) continue;
    EXPECT_EQ(set.max, 0) << set.path;
  }

  cut_trace(off, {.layers = {3}}, folder_.file("cut.kvtrace.h5"));
  const TraceReader cut(folder_.file("cut.kvtrace.h5"));
  EXPECT_EQ(cut.info().layer_rope_theta, std::vector<double>{0});
}

TEST_F(ConvertTest, RopeOffAndOnIsTheSameUpToRounding) {
  const TraceReader off = convert(source_, {.key_state = "pre_rope"}, "off.kvtrace.h5");
  const TraceReader on = convert(off.file(), {.key_state = "post_rope"}, "on.kvtrace.h5");
  EXPECT_GT(farthest(TraceReader(source_), off), 0.1);
  EXPECT_LT(farthest(TraceReader(source_), on), 1e-3);
  EXPECT_TRUE(diff_traces(TraceReader(source_), on).texts.empty());
}

TEST_F(ConvertTest, AttentionInputIsKeptAsItIs) {
  RawTrace raw;
  raw.add_attention_inputs();
  raw.write(source_);
  const TraceReader off = convert(source_, {.key_state = "pre_rope"}, "off.kvtrace.h5");
  const TraceLayer before = TraceReader(source_).load_layer(1);
  const TraceLayer after = off.load_layer(1);
  ASSERT_EQ(after.attention_input.tokens, before.queries.tokens);
  ASSERT_EQ(after.attention_input.dim, 48);
  EXPECT_TRUE(std::equal(after.attention_input.row(0, 0), after.attention_input.row(0, 0) + 12 * 48,
                         before.attention_input.row(0, 0)));
  const TraceReader brain = convert(source_, {.dtype = "bf16"}, "brain.kvtrace.h5");
  EXPECT_TRUE(brain.has_attention_input(0));
  EXPECT_LT(farthest(TraceReader(source_), brain), 1.0 / 256);

  raw.datasets.erase("/layer/01/attention_input");
  raw.write(source_);
  EXPECT_FALSE(convert(source_, {}, "one.kvtrace.h5").has_attention_input(1));
}

TEST_F(ConvertTest, WhatCannotBeConverted) {
  RawTrace raw;
  raw.attributes["rope_scaling"] = std::string("yarn");
  raw.write(source_);
  const auto error = [&](const ConvertOptions& options) {
    return user_error_of([&] { (void)convert(source_, options, "out.kvtrace.h5"); });
  };
  EXPECT_THAT(error({.key_state = "pre_rope"}),
              AllOf(HasSubstr("rope_scaling"), HasSubstr("yarn")));
  EXPECT_NO_THROW((void)convert(source_, {.key_state = "post_rope"}, "as-it-is.kvtrace.h5"));
  raw.attributes["rope_scaling"] = std::string("none");
  raw.datasets["/adapter/03/joint_lowrank"] = {std::vector<float>(64, 1), {16, 4}, {}, {}};
  raw.write(source_);
  EXPECT_THAT(error({.key_state = "pre_rope"}),
              AllOf(HasSubstr("/adapter"), HasSubstr("post_rope")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("out.kvtrace.h5")));
}

}  // namespace
}  // namespace kvreplay
