#include "traces/operations/cut.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/hash.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"
#include "tests/traces/raw_trace.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// 3 layers, 6 query heads on 2 KV heads, 40 + 16 tokens, queries from position 32.
constexpr SyntheticShape kShape{
    .layers = 3, .head_dim = 8, .prompt = 40, .decode = 16, .query_window = 8};

class CutTest : public testing::Test {
 protected:
  CutTest() { write_synthetic_trace(source_path_, kShape); }

  [[nodiscard]] TraceReader cut(const CutOptions& options) const {
    cut_trace(TraceReader(source_path_), options, out_);
    return TraceReader(out_);
  }
  [[nodiscard]] std::string error(const CutOptions& options) const {
    return user_error_of([&] { (void)cut(options); });
  }

  TemporaryFolder folder_;
  std::string source_path_ = folder_.file("source.kvtrace.h5");
  std::string out_ = folder_.file("cut.kvtrace.h5");
};

/// Every row of `part` equals the row of `whole` that lies `shift` later, bit for bit.
void expect_rows(const HalfTensor& part, const HalfTensor& whole, std::int64_t shift) {
  ASSERT_EQ(part.heads, whole.heads);
  ASSERT_GT(part.tokens, 0);
  ASSERT_LE(part.tokens + shift, whole.tokens);
  for (std::int64_t head = 0; head < part.heads; ++head) {
    ASSERT_TRUE(std::equal(part.head(head), part.head(head) + part.tokens * part.dim,
                           whole.row(head, shift)))
        << "head " << head;
  }
}

/// `part` holds the tokens from `begin` on and the layers `indices` of the source.
void expect_cut(const TraceReader& part, const TraceReader& source,
                const std::vector<std::int64_t>& indices, std::int64_t begin) {
  part.verify();
  ASSERT_EQ(part.info().recorded_layers.size(), indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const TraceLayer kept = part.load_layer(static_cast<std::int64_t>(i));
    const TraceLayer whole = source.load_layer(indices[i]);
    EXPECT_EQ(kept.layer, whole.layer);
    EXPECT_EQ(kept.keys.tokens, part.info().tokens);
    expect_rows(kept.keys, whole.keys, begin);
    expect_rows(kept.values, whole.values, begin);
    const std::int64_t shift = kept.query_start + begin - whole.query_start;
    expect_rows(kept.queries, whole.queries, shift);
    expect_rows(kept.queries_ahead, whole.queries_ahead, shift);
  }
  const std::vector<std::int32_t> ids = source.token_ids();
  EXPECT_THAT(part.token_ids(), testing::ElementsAreArray(
                                    ids.begin() + begin, ids.begin() + begin + part.info().tokens));
}

TEST_F(CutTest, KeepsTheBeginning) {
  const TraceReader source(source_path_);
  const TraceReader part = cut({.layers = {0, 2}, .decode_tokens = 5});
  EXPECT_EQ(part.info().prompt_tokens, 40);
  EXPECT_EQ(part.info().tokens, 45);
  EXPECT_THAT(part.info().recorded_layers, ElementsAre(0, 2));
  EXPECT_EQ(part.info().layers, 3);
  EXPECT_EQ(part.query_start(0), 32);
  EXPECT_THAT(part.info().text_source,
              AllOf(HasSubstr(source.info().text_source), HasSubstr("tokens 0 to 44"),
                    HasSubstr(source.content_hash())));
  expect_cut(part, source, {0, 2}, 0);
}

TEST_F(CutTest, ThePromptMayEndWhereQueriesExist) {
  const TraceReader source(source_path_);
  for (const std::int64_t prompt : {33, 36, 40, 55}) {
    const TraceReader part = cut({.layers = {1}, .prompt_tokens = prompt});
    EXPECT_EQ(part.info().prompt_tokens, prompt);
    EXPECT_EQ(part.info().tokens, 56);
    expect_cut(part, source, {1}, 0);
  }
}

TEST_F(CutTest, ALaterWindow) {
  const TraceReader source(source_path_);
  {
    const TraceReader part = cut({.window_start = 10, .decode_tokens = 6});
    EXPECT_EQ(part.info().prompt_tokens, 30);
    EXPECT_EQ(part.info().tokens, 36);
    EXPECT_EQ(part.query_start(0), 22);
    EXPECT_THAT(part.info().text_source, HasSubstr("tokens 10 to 45"));
    expect_cut(part, source, {0, 1, 2}, 10);
  }
  // The window starts after the first query.
  const TraceReader part = cut({.window_start = 36, .prompt_tokens = 10, .decode_tokens = 4});
  EXPECT_EQ(part.query_start(0), 0);
  EXPECT_EQ(part.info().tokens, 14);
  expect_cut(part, source, {0, 1, 2}, 36);
}

TEST_F(CutTest, ACutOfACutIsTheSameCut) {
  const TraceReader source(source_path_);
  cut_trace(source, {.decode_tokens = 10}, out_);
  const std::string twice = folder_.file("twice.kvtrace.h5");
  cut_trace(TraceReader(out_), {.layers = {1}, .decode_tokens = 3}, twice);
  expect_cut(TraceReader(twice), source, {1}, 0);
}

TEST_F(CutTest, SameBytesEveryTime) {
  cut_trace(TraceReader(source_path_), {.layers = {1}}, out_);
  const std::string again = folder_.file("again.kvtrace.h5");
  cut_trace(TraceReader(source_path_), {.layers = {1}}, again);
  EXPECT_EQ(sha256_file(out_), sha256_file(again));
}

TEST_F(CutTest, AFileMayBeCutOntoItself) {
  const TraceReader source(source_path_);
  cut_trace(source, {.layers = {2}, .decode_tokens = 1}, source_path_);
  expect_cut(TraceReader(source_path_), source, {2}, 0);
}

TEST_F(CutTest, AdaptersComeAlong) {
  RawTrace raw;
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 3;
  raw.datasets["/adapter/03/joint_lowrank"] = {values, {16, 4}, {}, {}};
  raw.write(source_path_);
  const TraceReader part = cut({.layers = {3}});
  EXPECT_THAT(part.adapter_names(0), ElementsAre("joint_lowrank"));
  const Adapter adapter = part.load_adapter(0, "joint_lowrank").value();
  EXPECT_EQ(adapter.values, values);
  EXPECT_THAT(adapter.shape, ElementsAre(16, 4));
}

TEST_F(CutTest, LayersWithDifferentQueriesKeepWhatAllHave) {
  RawTrace raw;
  for (const char* name : {"query", "query_ahead"}) {
    raw.datasets[std::string("/layer/03/") + name] = RawTrace::halves({6, 10, 8});
    raw.datasets[std::string("/layer/03/") + name].query_start = std::int64_t{14};
  }
  raw.write(source_path_);
  const TraceReader part = cut({});
  EXPECT_EQ(part.query_start(0), 14);
  EXPECT_EQ(part.query_start(1), 14);
  expect_cut(part, TraceReader(source_path_), {0, 1}, 0);
}

TEST_F(CutTest, OptionsOutOfRangeSayWhatIsAllowed) {
  const auto says = [&](const CutOptions& options, const std::string& found,
                        const std::string& allowed) {
    EXPECT_THAT(error(options), AllOf(HasSubstr(source_path_), HasSubstr(found),
                                      testing::EndsWith("allowed: " + allowed)));
  };
  says({.layers = {0, 3}}, "layer 3 is not recorded", "0, 1, 2, increasing");
  says({.layers = {2, 1}}, "layer 1 is out of order", "0, 1, 2, increasing");
  says({.layers = {1, 1}}, "layer 1 is out of order", "0, 1, 2, increasing");
  says({.prompt_tokens = 32}, "prompt_tokens is 32", "33 to 55");
  says({.prompt_tokens = 56}, "prompt_tokens is 56", "33 to 55");
  says({.window_start = 10, .prompt_tokens = 22}, "prompt_tokens is 22", "23 to 45");
  says({.window_start = 40}, "window_start is 40", "0 to 39");
  says({.window_start = -1}, "window_start is -1", "0 to 39");
  says({.decode_tokens = 0}, "decode_tokens is 0", "1 to 16");
  says({.prompt_tokens = 50, .decode_tokens = 7}, "decode_tokens is 7", "1 to 6");
  says({.prompt_tokens = 55, .decode_tokens = 2}, "decode_tokens is 2", "1");
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(CutTest, AttentionInputGoesWithTheQueries) {
  RawTrace raw;
  raw.add_attention_inputs();
  raw.write(source_path_);
  const TraceReader made = cut({.layers = {3}, .window_start = 4, .prompt_tokens = 10});
  made.verify();
  expect_rows(made.load_layer(0).attention_input,
              TraceReader(source_path_).load_layer(1).attention_input, 0);
  EXPECT_EQ(made.load_layer(0).attention_input.tokens, made.load_layer(0).queries.tokens);
}

TEST_F(CutTest, OutputWeightsGoWithTheQueries) {
  RawTrace raw;
  raw.add_output_weights();
  raw.write(source_path_);
  const TraceReader source(source_path_);
  const TraceReader made =
      cut({.layers = {3}, .window_start = 4, .prompt_tokens = 10, .decode_tokens = 2});
  made.verify();
  const OutputWeights whole = source.load_output_weights(1).value();
  const OutputWeights part = made.load_output_weights(0).value();
  EXPECT_EQ(part.sketch, whole.sketch);
  const std::int64_t first = made.query_start(0) + 4 - source.query_start(1);
  const auto norms = whole.residual_norm.begin() + first;
  EXPECT_EQ(part.residual_norm,
            std::vector<float>(norms, norms + made.load_layer(0).queries.tokens));
}

/// The trace of `kShape`, read again as a conversation of two turns.
void write_conversation(const std::string& path, const std::string& out) {
  const TraceReader source(path);
  TraceInfo info = source.info();
  info.segments = {{"system", 0, false},
                   {"user", 10, false},
                   {"assistant", 40, true},
                   {"user", 46, false},
                   {"assistant", 50, true}};
  TraceWriter writer(out, info, {.start = source.query_start(0), .ahead = true});
  writer.write_tokens(source.token_ids(), source.token_statistic("entropy"),
                      source.token_statistic("top_probability"),
                      source.token_statistic("log_probability"));
  for (std::int64_t i = 0; i < std::ssize(info.recorded_layers); ++i) {
    const TraceLayer layer = source.load_layer(i);
    const auto copy = [&](LayerTensor tensor, const HalfTensor& rows) {
      for (std::int64_t head = 0; head < rows.heads; ++head) {
        writer.append(i, tensor, head,
                      {rows.row(head, 0), static_cast<std::size_t>(rows.tokens * rows.dim)});
      }
    };
    copy(LayerTensor::kKey, layer.keys);
    copy(LayerTensor::kValue, layer.values);
    copy(LayerTensor::kQuery, layer.queries);
    copy(LayerTensor::kQueryAhead, layer.queries_ahead);
  }
  writer.finish();
}

TEST_F(CutTest, KeepsTheSegmentsOfAConversation) {
  const std::string conversation = folder_.file("conversation.kvtrace.h5");
  write_conversation(source_path_, conversation);
  source_path_ = conversation;
  EXPECT_EQ(cut({}).info().segments, TraceReader(source_path_).info().segments);
  EXPECT_THAT(cut({.window_start = 20, .decode_tokens = 12}).info().segments,
              ElementsAre(Segment{"user", 0, false}, Segment{"assistant", 20, true},
                          Segment{"user", 26, false}, Segment{"assistant", 30, true}));
  EXPECT_THAT(cut({.decode_tokens = 6}).info().turns(), ElementsAre(Turn{0, 40, 46}));
  EXPECT_THAT(error({.decode_tokens = 8}),
              AllOf(HasSubstr("48, lies in a part of the user"), HasSubstr("within an answer")));
  EXPECT_THAT(error({.prompt_tokens = 42}),
              AllOf(HasSubstr("prompt would end at 42"), HasSubstr("40, where its first answer")));
}

}  // namespace
}  // namespace kvreplay
