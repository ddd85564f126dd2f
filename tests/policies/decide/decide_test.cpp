#include "policies/decide/decide.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/hdf5/hdf5_file.hpp"
#include "tests/support/random_layer.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class DecideTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    write_synthetic_trace(path("trace.kvtrace.h5"));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] TraceReader trace() const { return TraceReader(path("trace.kvtrace.h5")); }
  [[nodiscard]] std::string bytes(const AccessLog& log) const {
    const std::string file = path("log.access.h5");
    write_access_log(log, file);
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  std::filesystem::path folder_;
  NamedDecideSpec full_{"full", decide_spec(R"({
    "grouping": {"part": "whole"}, "scoring": {"part": "all"},
    "selection": {"part": "everything"}})")};
  NamedDecideSpec pages_{"pages", decide_spec(R"({
    "stream": {"heads": "layer", "query": "look_ahead", "dense_layers": 1},
    "grouping": {"part": "page", "group_tokens": 4},
    "scoring": {"part": "exact", "heads": "sum_softmax"},
    "selection": {"part": "top_groups", "budget_tokens": 64}})")};
  NamedDecideSpec clusters_{"clusters", decide_spec(R"({
    "stream": {"sink_tokens": 4},
    "grouping": {"part": "k_means", "tokens_per_cluster": 16, "window_tokens": 8},
    "scoring": {"part": "centroid"},
    "selection": {"part": "token_budget", "budget_tokens": 64}})")};
};

TEST_F(DecideTest, FullAttentionIsPerfectAndSelectionIsNot) {
  const std::vector<AccessLog> logs =
      decide(trace(), std::vector{full_, pages_, clusters_}, {.record_tokens = true});
  ASSERT_EQ(logs.size(), 3u);
  for (const LayerLog& layer : logs[0].layers) {
    ASSERT_EQ(layer.quality.recall.size(), 32u * 6u);
    EXPECT_THAT(layer.quality.recall, Each(1.0F));
    EXPECT_THAT(layer.quality.attention_mass, Each(1.0F));
    EXPECT_THAT(layer.quality.output_error, Each(0.0F));
  }
  EXPECT_TRUE(logs[1].layers[0].full_attention);
  EXPECT_THAT(logs[1].layers[0].quality.recall, Each(1.0F));
  for (const LayerLog* layer : {&logs[1].layers[1], &logs[2].layers[0], &logs[2].layers[1]}) {
    const Quality& quality = layer->quality;
    for (std::size_t i = 0; i < quality.recall.size(); ++i) {
      EXPECT_GT(quality.recall[i], 0.0F);
      EXPECT_LE(quality.attention_mass[i], quality.best_attention_mass[i]);
      EXPECT_LT(quality.best_attention_mass[i], 1.0F);
      EXPECT_GT(quality.output_error[i], 0.0F);
    }
  }
}

TEST_F(DecideTest, AnyNumberOfThreadsGivesTheSameBytes) {
  // Few systems are spread over threads by layers, and many within a layer.
  const std::vector few{full_, pages_, clusters_};
  std::vector<NamedDecideSpec> many;
  for (int i = 0; i < 3; ++i) many.insert(many.end(), few.begin(), few.end());
  for (const std::vector<NamedDecideSpec>& systems : {few, many}) {
    const std::vector<AccessLog> one = decide(trace(), systems, {.threads = 1});
    for (const int threads : {2, 3, 5}) {
      const std::vector<AccessLog> several = decide(trace(), systems, {.threads = threads});
      for (std::size_t i = 0; i < systems.size(); ++i) {
        EXPECT_EQ(bytes(several[i]), bytes(one[i])) << threads << " threads, system " << i;
      }
    }
  }
}

TEST_F(DecideTest, SystemsDoNotTouchEachOther) {
  const std::vector<AccessLog> together = decide(trace(), std::vector{pages_, clusters_}, {});
  EXPECT_EQ(bytes(together[0]), bytes(decide(trace(), std::vector{pages_}, {})[0]));
  EXPECT_EQ(bytes(together[1]), bytes(decide(trace(), std::vector{clusters_}, {})[0]));
}

TEST_F(DecideTest, TheSeedReachesTheClusters) {
  const AccessLog one = decide(trace(), std::vector{clusters_}, {.seed = 1})[0];
  const AccessLog other = decide(trace(), std::vector{clusters_}, {.seed = 2})[0];
  EXPECT_NE(one.layers[0].streams[0].event_tokens, other.layers[0].streams[0].event_tokens);
  // Streams of one layer do not share their draws either.
  EXPECT_NE(one.layers[0].streams[0].event_tokens, one.layers[0].streams[1].event_tokens);
}

TEST_F(DecideTest, FewerStepsAreAPrefix) {
  const AccessLog all = decide(trace(), std::vector{clusters_}, {})[0];
  const AccessLog some = decide(trace(), std::vector{clusters_}, {.max_steps = 5})[0];
  EXPECT_EQ(some.steps, 5);
  const Quality& few = some.layers[1].quality;
  ASSERT_EQ(few.recall.size(), 5u * 6u);
  EXPECT_TRUE(
      std::equal(few.recall.begin(), few.recall.end(), all.layers[1].quality.recall.begin()));
}

TEST_F(DecideTest, RefusesWhatATraceDoesNotHold) {
  const auto message = [&](const std::string& file, const NamedDecideSpec& system) -> std::string {
    try {
      (void)decide(TraceReader(file), std::vector{system}, {});
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  write_synthetic_trace(path("no_ahead.kvtrace.h5"), {.queries_ahead = false});
  EXPECT_THAT(message(path("no_ahead.kvtrace.h5"), pages_), HasSubstr("/stream/query"));
  EXPECT_EQ(message(path("no_ahead.kvtrace.h5"), clusters_), "no error");
  const NamedDecideSpec low_rank{"low_rank", decide_spec(R"({
    "stream": {"heads": "layer"}, "grouping": {"part": "page"}, "scoring": {"part": "low_rank"},
    "selection": {"part": "top_groups"}})")};
  EXPECT_THAT(message(path("trace.kvtrace.h5"), low_rank),
              AllOf(HasSubstr("/adapter/00/joint_lowrank"), HasSubstr("which low_rank needs"),
                    HasSubstr("`kvreplay record --adapt-text"), HasSubstr("`kvreplay adapt`")));
}

TEST_F(DecideTest, TheLogReadsBackAsItWasWritten) {
  const AccessLog log =
      decide(trace(), std::vector{pages_}, {.max_steps = 7, .record_tokens = true})[0];
  const std::string written = bytes(log);
  const AccessLog back = read_access_log(path("log.access.h5"));
  EXPECT_EQ(back.trace_hash, trace().content_hash());
  EXPECT_EQ(back.decide_config, pages_.spec.resolved());
  EXPECT_EQ(back.full_attention_layers, 1);
  EXPECT_EQ(back.formats[0].entry_bytes(2, 32), 256);
  EXPECT_EQ(back.layers[1].streams[0].attended, log.layers[1].streams[0].attended);
  EXPECT_EQ(back.layers[1].quality.recall, log.layers[1].quality.recall);
  EXPECT_EQ(bytes(back), written);
}

TEST_F(DecideTest, ADamagedLogIsRefused) {
  AccessLog log = decide(trace(), std::vector{clusters_}, {.max_steps = 3})[0];
  NumberSets& requested = log.layers[0].streams[1].requested;
  std::vector<std::int64_t> begin = requested.begin();
  begin[2] = 1000000;
  requested = NumberSets(begin, requested.bytes());
  (void)bytes(log);
  try {
    (void)read_access_log(path("log.access.h5"));
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/layer/00/stream/1/asked_begin"));
  }
  for (const std::string config : {"{", "{}", R"({"stream": {"dense_layers": "two"}})"}) {
    AccessLog unknown = decide(trace(), std::vector{clusters_}, {.max_steps = 3})[0];
    unknown.decide_config = config;
    (void)bytes(unknown);
    EXPECT_THAT(user_error_of([&] { (void)read_access_log(path("log.access.h5")); }),
                HasSubstr("decide_config names no dense_layers"));
  }
  EXPECT_THROW((void)read_access_log(path("trace.kvtrace.h5")), UserError);
}

}  // namespace
}  // namespace kvreplay
