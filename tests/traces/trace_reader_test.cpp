#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/hash.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"
#include "tests/traces/raw_trace.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Half kNan{0x7e00};
constexpr Half kInfinity{0xfc00};

class TraceReaderTest : public testing::Test {
 protected:
  /// Writes `raw_` and opens it.
  [[nodiscard]] TraceReader open() const {
    raw_.write(path_);
    return TraceReader(path_);
  }
  [[nodiscard]] std::string error_on_open() const {
    return user_error_of([&] { (void)open(); });
  }
  [[nodiscard]] std::vector<Half>& halves(const std::string& path) {
    return std::get<std::vector<Half>>(raw_.datasets.at(path).values);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("raw.kvtrace.h5");
  RawTrace raw_;
};

void expect_equal(const HalfTensor& tensor, const std::vector<Half>& expected) {
  ASSERT_EQ(static_cast<std::size_t>(tensor.heads * tensor.tokens * tensor.dim), expected.size());
  auto next = expected.begin();
  for (std::int64_t head = 0; head < tensor.heads; ++head) {
    for (std::int64_t row = 0; row < tensor.tokens; ++row) {
      for (std::int64_t i = 0; i < tensor.dim; ++i) {
        ASSERT_EQ(tensor.row(head, row)[i].bits, (next++)->bits) << head << " " << row << " " << i;
      }
    }
  }
}

TEST_F(TraceReaderTest, ReadsASoundTrace) {
  const TraceReader trace = open();
  EXPECT_EQ(trace.file(), path_);
  EXPECT_EQ(trace.info().decode_steps(), 8);
  EXPECT_EQ(trace.info().queries_per_kv_head(), 3);
  EXPECT_THAT(trace.info().recorded_layers, ElementsAre(1, 3));
  EXPECT_EQ(trace.info().softmax_scale, 0.35);
  EXPECT_EQ(trace.info().text_mode, "");
  EXPECT_EQ(trace.content_hash(), sha256_file(path_));
  EXPECT_EQ(trace.query_start(1), 12);
  EXPECT_TRUE(trace.has_queries_ahead(0));
  EXPECT_EQ(trace.token_ids(), std::vector<std::int32_t>(24, 7));
  EXPECT_EQ(trace.token_statistic("entropy"), std::vector<float>(24, 0.5F));
  EXPECT_NO_THROW(trace.verify());

  const TraceLayer layer = trace.load_layer(1);
  EXPECT_EQ(layer.layer, 3);
  EXPECT_EQ(layer.query_start, 12);
  EXPECT_EQ(layer.keys.heads, 2);
  EXPECT_EQ(layer.queries.heads, 6);
  EXPECT_EQ(layer.queries.tokens, 12);
  expect_equal(layer.keys, halves("/layer/03/key"));
  expect_equal(layer.values, halves("/layer/03/value"));
  expect_equal(layer.queries, halves("/layer/03/query"));
  expect_equal(layer.queries_ahead, halves("/layer/03/query_ahead"));
}

TEST_F(TraceReaderTest, ContiguousVectorsAreMappedNotCopied) {
  const TraceReader trace = open();
  const TraceLayer first = trace.load_layer(0);
  const TraceLayer second = trace.load_layer(0);
  EXPECT_EQ(first.keys.data, second.keys.data);
  EXPECT_EQ(first.queries_ahead.data, second.queries_ahead.data);
}

TEST_F(TraceReaderTest, ALayerOutlivesItsReader) {
  TraceLayer layer;
  {
    const TraceReader trace = open();
    layer = trace.load_layer(0);
  }
  expect_equal(layer.keys, halves("/layer/01/key"));
}

TEST_F(TraceReaderTest, ReadsChunkedAndCompressedVectors) {
  raw_.datasets["/layer/01/key"].layout = {{1, 7, 8}, 4};
  raw_.datasets["/layer/01/query"].layout = {{3, 5, 4}, 0};
  const TraceReader trace = open();
  const TraceLayer layer = trace.load_layer(0);
  expect_equal(layer.keys, halves("/layer/01/key"));
  expect_equal(layer.queries, halves("/layer/01/query"));
  EXPECT_NE(layer.keys.data, trace.load_layer(0).keys.data);
  EXPECT_NO_THROW(trace.verify());
}

/// Stores every vector data set of the trace as bfloat16, from the upper bits of its f16 values.
void make_brain(RawTrace& raw) {
  raw.attributes["dtype"] = std::string("bf16");
  for (auto& [path, dataset] : raw.datasets) {
    if (!path.starts_with("/layer")) continue;
    std::vector<std::uint16_t> brain;
    for (const Half half : std::get<std::vector<Half>>(dataset.values)) {
      brain.push_back(
          static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(to_float(half)) >> 16));
    }
    dataset.values = brain;
  }
}

TEST_F(TraceReaderTest, ConvertsBrainFloats) {
  make_brain(raw_);
  raw_.datasets["/layer/01/value"].layout = {{1, 8, 8}, 1};
  const TraceReader trace = open();
  const TraceLayer layer = trace.load_layer(0);
  for (const auto& [path, tensor] :
       {std::pair{"/layer/01/key", layer.keys}, std::pair{"/layer/01/value", layer.values},
        std::pair{"/layer/01/query", layer.queries}}) {
    std::vector<Half> expected;
    for (const std::uint16_t bits :
         std::get<std::vector<std::uint16_t>>(raw_.datasets[path].values)) {
      expected.push_back(to_half(bfloat16_to_float(bits)));
      EXPECT_EQ(to_float(expected.back()), bfloat16_to_float(bits));
    }
    expect_equal(tensor, expected);
  }
  EXPECT_NO_THROW(trace.verify());
}

TEST_F(TraceReaderTest, RefusesBrainFloatsThatHalfCannotHold) {
  make_brain(raw_);
  auto& keys = std::get<std::vector<std::uint16_t>>(raw_.datasets["/layer/01/key"].values);
  keys[100] = 0x4780;  // 65536
  const TraceReader trace = open();
  EXPECT_THAT(user_error_of([&] { (void)trace.load_layer(0); }),
              AllOf(HasSubstr(path_), HasSubstr("/layer/01/key"), HasSubstr("65504")));
  keys[100] = 0x7fc0;  // NaN
  const TraceReader other = open();
  EXPECT_THAT(user_error_of([&] { (void)other.load_layer(0); }), HasSubstr("not a number"));
  EXPECT_THAT(user_error_of([&] { other.verify(); }), HasSubstr("/layer/01/key"));
}

TEST_F(TraceReaderTest, QueryAheadIsOptional) {
  raw_.datasets.erase("/layer/01/query_ahead");
  const TraceReader trace = open();
  EXPECT_FALSE(trace.has_queries_ahead(0));
  EXPECT_TRUE(trace.has_queries_ahead(1));
  EXPECT_EQ(trace.load_layer(0).queries_ahead.tokens, 0);
}

TEST_F(TraceReaderTest, EveryAttributeIsRequired) {
  const RawTrace sound;
  for (const auto& [name, attribute] : sound.attributes) {
    raw_ = sound;
    raw_.attributes.erase(name);
    EXPECT_THAT(error_on_open(),
                AllOf(HasSubstr(path_ + ": /: "), HasSubstr("'" + name + "' is missing")));
  }
}

TEST_F(TraceReaderTest, EveryAttributeHasItsType) {
  const RawTrace sound;
  for (const auto& [name, attribute] : sound.attributes) {
    raw_ = sound;
    const bool is_text = std::holds_alternative<std::string>(attribute);
    raw_.attributes[name] = is_text ? RawAttribute(std::int64_t{1}) : RawAttribute("text");
    EXPECT_THAT(error_on_open(),
                AllOf(HasSubstr(path_ + ": /: "), HasSubstr("'" + name + "' holds")));
    if (std::holds_alternative<std::int64_t>(attribute)) {
      raw_.attributes[name] = 1.5;
      EXPECT_THAT(error_on_open(), HasSubstr("'" + name + "' holds a real"));
    }
  }
}

TEST_F(TraceReaderTest, EveryAttributeHasItsRange) {
  const auto text = [](const char* value) { return RawAttribute(std::string(value)); };
  const auto integer = [](std::int64_t value) { return RawAttribute(value); };
  using Integers = std::vector<std::int64_t>;
  const std::vector<std::pair<std::string, RawAttribute>> bad = {
      {"format", text("other")},
      {"format_version", integer(2)},
      {"complete", integer(0)},
      {"weights_sha256", text("abc")},
      {"text_sha256", std::string(64, 'g')},
      {"layers", integer(0)},
      {"query_heads", integer(5)},
      {"query_heads", integer(0)},
      {"kv_heads", integer(-2)},
      {"head_dim", integer(0)},
      {"head_dim", integer(std::numeric_limits<std::int64_t>::max())},
      {"hidden_size", integer(0)},
      {"recorded_layers", Integers{}},
      {"recorded_layers", Integers{1, 1}},
      {"recorded_layers", Integers{3, 1}},
      {"recorded_layers", Integers{1, 4}},
      {"recorded_layers", Integers{-1, 3}},
      {"tokens", integer(1)},
      {"tokens", integer(std::numeric_limits<std::int64_t>::max())},
      {"prompt_tokens", integer(0)},
      {"prompt_tokens", integer(RawTrace::kTokens)},
      {"dtype", text("f32")},
      {"key_state", text("")},
      {"rope_theta", 0.0},
      {"rope_pairs", text("quarter")},
      {"rope_scaling", text("by layer")},
      {"softmax_scale", -1.0},
      {"softmax_scale", std::numeric_limits<double>::quiet_NaN()},
      {"sliding_window", Integers{0}},
      {"sliding_window", Integers{0, -1}},
      {"text_mode", text("guessed")},
      {"softcap", 50.0},
      {"attn_logit_softcapping", 30.0},
      {"s_aux", Integers{1, 2}},
  };
  for (const auto& [name, value] : bad) {
    raw_ = RawTrace();
    raw_.attributes[name] = value;
    EXPECT_THAT(error_on_open(), AllOf(HasSubstr(path_ + ": /: "), HasSubstr("'" + name + "' is "),
                                       HasSubstr("allowed: ")));
  }
}

TEST_F(TraceReaderTest, RopeByLayer) {
  raw_.attributes["rope_scaling"] = std::string("by layer");
  const auto set = [&](std::vector<double> thetas) {
    raw_.attributes["layer_rope_theta"] = std::move(thetas);
  };
  set({500.0, 0.0});
  raw_.write(path_);
  const TraceReader by_layer(path_);
  EXPECT_TRUE(by_layer.info().rope_known());
  EXPECT_EQ(by_layer.info().rope_theta_at(0), 500);
  EXPECT_EQ(by_layer.info().rope_theta_at(1), 0);

  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& bad :
       std::vector<std::vector<double>>{{500}, {500, -1}, {nan, 0}}) {
    set(bad);
    EXPECT_THAT(error_on_open(), AllOf(HasSubstr("'layer_rope_theta' is ["), HasSubstr("of 2")));
  }
  // A reader that does not know the attribute must not rotate keys by one base.
  set({500.0, 0.0});
  raw_.attributes["rope_scaling"] = std::string("none");
  EXPECT_THAT(error_on_open(), HasSubstr("'rope_scaling' is 'none'"));

  raw_.attributes.erase("layer_rope_theta");
  raw_.write(path_);
  EXPECT_EQ(TraceReader(path_).info().rope_theta_at(1), 10000);
}

/// Prompt 16, steps 8: a system's and a user's part, an answer, a question and its answer.
void add_segments(RawTrace& raw) {
  using Integers = std::vector<std::int64_t>;
  raw.attributes["format_version"] = std::int64_t{2};
  raw.attributes["segment_roles"] = std::string("system user assistant user assistant");
  raw.attributes["segment_begin"] = Integers{0, 3, 16, 18, 21};
  raw.attributes["segment_generated"] = Integers{0, 0, 1, 0, 1};
}

TEST_F(TraceReaderTest, AConversationHasSegmentsAndTurns) {
  raw_.write(path_);
  EXPECT_TRUE(TraceReader(path_).info().segments.empty());
  EXPECT_THAT(TraceReader(path_).info().turns(), testing::ElementsAre(Turn{0, 16, 24}));
  add_segments(raw_);
  raw_.write(path_);
  const TraceReader reader(path_);
  reader.verify();
  EXPECT_THAT(reader.info().segments,
              testing::ElementsAre(Segment{"system", 0, false}, Segment{"user", 3, false},
                                   Segment{"assistant", 16, true}, Segment{"user", 18, false},
                                   Segment{"assistant", 21, true}));
  EXPECT_THAT(reader.info().turns(), testing::ElementsAre(Turn{0, 16, 18}, Turn{18, 21, 24}));
}

TEST_F(TraceReaderTest, SegmentsHaveTheirRange) {
  using Integers = std::vector<std::int64_t>;
  const std::vector<std::pair<std::string, RawAttribute>> bad = {
      {"format_version", std::int64_t{1}},
      {"format_version", std::int64_t{3}},
      {"segment_roles", std::string("system user tool user assistant")},
      {"segment_begin", Integers{0, 3, 16, 18}},
      {"segment_begin", Integers{1, 3, 16, 18, 21}},
      {"segment_begin", Integers{0, 3, 16, 16, 21}},
      {"segment_begin", Integers{0, 3, 16, 18, 24}},
      {"segment_begin", Integers{0, 3, 15, 18, 21}},
      {"segment_generated", Integers{0, 0, 1, 0}},
      {"segment_generated", Integers{0, 0, 1, 0, 2}},
      {"segment_generated", Integers{1, 0, 1, 0, 1}},
      {"segment_generated", Integers{0, 0, 1, 1, 0}},
  };
  for (const auto& [name, value] : bad) {
    raw_ = RawTrace();
    add_segments(raw_);
    raw_.attributes[name] = value;
    EXPECT_THAT(error_on_open(), AllOf(HasSubstr(path_ + ": /: "), HasSubstr("'" + name + "' is "),
                                       HasSubstr("allowed: ")));
  }
  for (const char* name : {"segment_begin", "segment_generated"}) {
    raw_ = RawTrace();
    add_segments(raw_);
    raw_.attributes.erase(name);
    EXPECT_THAT(error_on_open(), HasSubstr("'" + std::string(name) + "' is missing"));
  }
}

TEST_F(TraceReaderTest, RequiredDataSets) {
  const RawTrace sound;
  for (const auto& [path, dataset] : sound.datasets) {
    if (path.ends_with("query_ahead")) continue;
    raw_ = sound;
    raw_.datasets.erase(path);
    EXPECT_THAT(error_on_open(), AllOf(HasSubstr(path_), HasSubstr(path), HasSubstr("is missing")));
  }
}

TEST_F(TraceReaderTest, DataSetsHaveTheirTypeAndShape) {
  const RawTrace sound;
  for (const auto& [path, dataset] : sound.datasets) {
    raw_ = sound;
    std::int64_t count = 1;
    for (const std::int64_t extent : dataset.shape) count *= extent;
    raw_.datasets[path].values = std::vector<std::uint16_t>(static_cast<std::size_t>(count));
    EXPECT_THAT(error_on_open(), AllOf(HasSubstr(path_), HasSubstr(path),
                                       HasSubstr("holds 16-bit unsigned integer")));
    raw_ = sound;
    raw_.datasets[path].shape = {count};
    if (dataset.shape.size() == 1) raw_.datasets[path].shape = {1, count};
    EXPECT_THAT(error_on_open(), AllOf(HasSubstr(path_), HasSubstr(path), HasSubstr("has shape")));
  }
  raw_ = sound;
  raw_.datasets["/layer/03/key"] = RawTrace::halves({2, 23, 8});
  EXPECT_THAT(error_on_open(), AllOf(HasSubstr("/layer/03/key"), HasSubstr("[2, 23, 8]"),
                                     HasSubstr("allowed: [2, 24, 8]")));
}

TEST_F(TraceReaderTest, QueryStartIsChecked) {
  for (const char* name : {"query", "query_ahead"}) {
    const std::string path = std::string("/layer/01/") + name;
    raw_ = RawTrace();
    raw_.datasets[path].query_start.reset();
    EXPECT_THAT(error_on_open(), AllOf(HasSubstr(path), HasSubstr("'query_start' is missing")));
    for (const std::int64_t start : {-1, 17}) {
      raw_.datasets[path].query_start = start;
      EXPECT_THAT(error_on_open(), AllOf(HasSubstr(path), HasSubstr("allowed: integer from 0")));
    }
  }
  raw_ = RawTrace();
  raw_.datasets["/layer/01/query_ahead"].query_start = std::int64_t{11};
  EXPECT_THAT(error_on_open(), AllOf(HasSubstr("/layer/01/query_ahead"), HasSubstr("differs")));
}

TEST_F(TraceReaderTest, NanAndInfinityAreFoundOnLoad) {
  for (const char* name : {"key", "value", "query", "query_ahead"}) {
    for (const Half bad : {kNan, kInfinity}) {
      raw_ = RawTrace();
      const std::string path = std::string("/layer/03/") + name;
      halves(path).back() = bad;
      const TraceReader trace = open();
      EXPECT_NO_THROW((void)trace.load_layer(0));
      EXPECT_THAT(
          user_error_of([&] { (void)trace.load_layer(1); }),
          AllOf(HasSubstr(path_), HasSubstr(path), HasSubstr("not a number or infinite at")));
    }
  }
  raw_ = RawTrace();
  std::get<std::vector<float>>(raw_.datasets["/tokens/entropy"].values)[3] =
      std::numeric_limits<float>::infinity();
  EXPECT_THAT(user_error_of([&] { (void)open().token_statistic("entropy"); }),
              AllOf(HasSubstr("/tokens/entropy"), HasSubstr("value 3")));
}

TEST_F(TraceReaderTest, VerifyLooksAtEveryValue) {
  // 600 tokens: rows 0, 2, 4 ... are sampled, row 301 is not.
  constexpr std::int64_t kMany = 600;
  raw_.attributes["tokens"] = kMany;
  for (auto& [path, dataset] : raw_.datasets) {
    if (path.ends_with("/key") || path.ends_with("/value")) {
      dataset = RawTrace::halves({2, kMany, 8});
    } else if (path.starts_with("/layer")) {
      dataset = RawTrace::halves({6, kMany - RawTrace::kQueryStart, 8});
      dataset.query_start = RawTrace::kQueryStart;
    } else if (path == "/tokens/id") {
      dataset = {std::vector<std::int32_t>(kMany), {kMany}, {}, {}};
    } else {
      dataset = {std::vector<float>(kMany), {kMany}, {}, {}};
    }
  }
  halves("/layer/03/value")[(kMany + 301) * 8 + 5] = kNan;
  for (const Hdf5Layout& layout : {Hdf5Layout{}, Hdf5Layout{{1, 64, 8}, 1}}) {
    raw_.datasets["/layer/03/value"].layout = layout;
    const TraceReader trace = open();
    EXPECT_NO_THROW((void)trace.load_layer(1));
    EXPECT_THAT(user_error_of([&] { trace.verify(); }),
                AllOf(HasSubstr(path_), HasSubstr("/layer/03/value"), HasSubstr("[1, 301, 5]")));
  }
}

TEST_F(TraceReaderTest, AttentionInputIsCheckedToo) {
  raw_.datasets["/layer/01/attention_input"] = RawTrace::halves({12, 47});
  EXPECT_THAT(error_on_open(),
              AllOf(HasSubstr("/layer/01/attention_input"), HasSubstr("[12, 48]")));
  raw_.datasets["/layer/01/attention_input"] = RawTrace::halves({12, 48});
  EXPECT_NO_THROW(open().verify());
  raw_.datasets["/layer/01/attention_input"].layout = {{5, 48}, 1};
  halves("/layer/01/attention_input")[11 * 48 + 3] = kNan;
  EXPECT_THAT(user_error_of([&] { open().verify(); }),
              AllOf(HasSubstr("/layer/01/attention_input"), HasSubstr("[11, 3]")));
}

TEST_F(TraceReaderTest, OutputWeightsAreCheckedToo) {
  EXPECT_FALSE(open().load_output_weights(0).has_value());
  raw_.add_output_weights();
  EXPECT_NO_THROW(open().verify());
  EXPECT_EQ(open().load_output_weights(1).value().residual_norm.back(), 12);
  RawDataset norms = raw_.datasets["/layer/01/residual_norm"];
  std::get<std::vector<float>>(raw_.datasets["/layer/01/residual_norm"].values)[4] = 0;
  EXPECT_THAT(user_error_of([&] { open().verify(); }),
              AllOf(HasSubstr("/layer/01/residual_norm"), HasSubstr("norms above 0")));
  norms.shape = {11};
  std::get<std::vector<float>>(norms.values).pop_back();
  raw_.datasets["/layer/01/residual_norm"] = norms;
  EXPECT_THAT(error_on_open(), AllOf(HasSubstr("/layer/01/residual_norm"), HasSubstr("[12]")));
  raw_.datasets.erase("/layer/01/residual_norm");
  EXPECT_THAT(error_on_open(), HasSubstr("/layer/01/residual_norm"));
}

TEST_F(TraceReaderTest, Adapters) {
  raw_.datasets["/adapter/01/joint_lowrank"] = {std::vector<float>(16 * 4, 0.5F), {16, 4}, {}, {}};
  raw_.datasets["/adapter/01/head_pca"] = {std::vector<float>(2 * 64, 0.25F), {2, 8, 8}, {}, {}};
  const TraceReader trace = open();
  EXPECT_THAT(trace.adapter_names(0), ElementsAre("head_pca", "joint_lowrank"));
  EXPECT_TRUE(trace.adapter_names(1).empty());
  EXPECT_FALSE(trace.load_adapter(0, "head_skew").has_value());
  EXPECT_FALSE(trace.load_adapter(1, "head_pca").has_value());
  const std::optional<Adapter> adapter = trace.load_adapter(0, "joint_lowrank");
  ASSERT_TRUE(adapter.has_value());
  EXPECT_THAT(adapter->shape, ElementsAre(16, 4));
  EXPECT_EQ(adapter->values, std::vector<float>(64, 0.5F));
  EXPECT_EQ(adapter->text_sha256, "");
  EXPECT_NO_THROW(trace.verify());

  raw_.datasets["/adapter/01/head_pca"].shape = {2, 4, 16};
  raw_.datasets["/adapter/01/joint_lowrank"] = {std::vector<float>(16 * 17), {16, 17}, {}, {}};
  const TraceReader bad = open();
  EXPECT_THAT(user_error_of([&] { (void)bad.load_adapter(0, "head_pca"); }),
              AllOf(HasSubstr(path_), HasSubstr("/adapter/01/head_pca"), HasSubstr("[2, 8, 8]")));
  EXPECT_THAT(user_error_of([&] { (void)bad.load_adapter(0, "joint_lowrank"); }),
              AllOf(HasSubstr("/adapter/01/joint_lowrank"), HasSubstr("[16, 16]")));
}

TEST_F(TraceReaderTest, TruncatedFile) {
  raw_.write(path_);
  const auto whole = std::filesystem::file_size(path_);
  for (const auto size : {whole - 1, whole / 2, whole / 10}) {
    std::filesystem::resize_file(path_, size);
    EXPECT_THAT(user_error_of([&] { (void)TraceReader(path_); }),
                AllOf(HasSubstr(path_ + ": /: "), HasSubstr("truncated")));
  }
}

TEST_F(TraceReaderTest, NotATrace) {
  const auto error = [](const std::string& file) {
    return user_error_of([&] { (void)TraceReader(file); });
  };
  std::ofstream(path_) << "plain text";
  EXPECT_THAT(error(path_), AllOf(HasSubstr(path_), HasSubstr("not an HDF5 file")));
  std::ofstream(path_, std::ios::trunc).close();
  EXPECT_THAT(error(path_), AllOf(HasSubstr(path_), HasSubstr("not an HDF5 file")));
  EXPECT_THAT(error(folder_.path().string()), HasSubstr("not a regular file"));
  EXPECT_THAT(error(folder_.file("absent")), HasSubstr("No such file"));
  Hdf5File empty = Hdf5File::create(path_, path_);
  empty.close();
  EXPECT_THAT(error(path_), AllOf(HasSubstr(path_), HasSubstr("'format' is missing")));
}

TEST_F(TraceReaderTest, ADataSetThatWasNeverWritten) {
  raw_.datasets.erase("/layer/03/value");
  // Written by hand: created, no value stored.
  const std::string spoilt = folder_.file("spoilt.h5");
  {
    Hdf5File hdf5 = Hdf5File::create(spoilt, spoilt);
    for (const auto& [name, attribute] : raw_.attributes) {
      RawTrace::write_attribute(hdf5, "/", name, attribute);
    }
    const std::int64_t tokens[] = {RawTrace::kTokens};
    hdf5.create_dataset("/tokens/id", Hdf5Type::kInt32, tokens);
    hdf5.close();
  }
  EXPECT_THAT(user_error_of([&] { (void)TraceReader(spoilt); }),
              AllOf(HasSubstr(spoilt), HasSubstr("/tokens/id"), HasSubstr("never written")));
}

TEST_F(TraceReaderTest, UnknownStatistic) {
  const TraceReader trace = open();
  EXPECT_THAT(user_error_of([&] { (void)trace.token_statistic("entropie"); }),
              AllOf(HasSubstr(path_), HasSubstr("/tokens"), HasSubstr("did you mean 'entropy'")));
}

TEST_F(TraceReaderTest, LayersLoadFromManyThreads) {
  raw_.datasets["/layer/01/key"].layout = {{1, 7, 8}, 4};
  const TraceReader trace = open();
  std::vector<TraceLayer> layers(8);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      threads.emplace_back(
          [&, i] { layers[i] = trace.load_layer(static_cast<std::int64_t>(i % 2)); });
    }
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    expect_equal(layers[i].keys, halves(i % 2 == 0 ? "/layer/01/key" : "/layer/03/key"));
  }
}

}  // namespace
}  // namespace kvreplay
