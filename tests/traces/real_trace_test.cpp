#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/build_info.hpp"
#include "tests/support/temporary_folder.hpp"
#include "traces/operations/cut.hpp"
#include "traces/operations/diff.hpp"
#include "traces/operations/inspect.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path kData = std::filesystem::path(source_folder()) / "traces/data";
const std::string kShipped = (kData / "smollm2-135m-story-3k.kvtrace.h5").string();
const std::string kDialogue = (kData / "smollm2-135m-dialogue-6k.kvtrace.h5").string();

/// A full recording, which the repository does not hold: in $KVREPLAY_FULL_TRACES, or in a folder
/// shared/data beside the repository. Empty when there is none.
std::string full_trace(const std::string& name) {
  const char* folder = std::getenv("KVREPLAY_FULL_TRACES");
  const std::filesystem::path path =
      (folder != nullptr ? std::filesystem::path(folder)
                         : std::filesystem::path(source_folder()) / "../shared/data") /
      name;
  return std::filesystem::exists(path) ? path.string() : "";
}

TEST(ShippedTraceTest, IsSound) {
  const TraceReader trace(kShipped);
  trace.verify();
  EXPECT_THAT(trace.info().recorded_layers, ElementsAre(12, 24));
  EXPECT_EQ(trace.info().query_heads, 9);
  EXPECT_EQ(trace.info().kv_heads, 3);
  EXPECT_EQ(trace.info().prompt_tokens, 3072);
  EXPECT_EQ(trace.info().tokens, 3328);
  for (std::int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(trace.query_start(i), 3008);
    EXPECT_TRUE(trace.has_queries_ahead(i));
    EXPECT_THAT(trace.adapter_names(i), ElementsAre("head_pca", "joint_lowrank"));
    EXPECT_EQ(trace.load_adapter(i, "head_pca").value().text_tokens, 4096);
  }
  EXPECT_LE(std::filesystem::file_size(kShipped), 8U << 20);
}

TEST(ShippedTraceTest, TheDialogue) {
  const TraceReader trace(kDialogue);
  trace.verify();
  EXPECT_FALSE(trace.synthetic());
  EXPECT_THAT(trace.info().recorded_layers, ElementsAre(18));
  EXPECT_EQ(trace.info().prompt_tokens, 6144);
  EXPECT_EQ(trace.info().tokens, 6400);
  EXPECT_THAT(trace.info().text_source, HasSubstr("Pinero"));
  EXPECT_THAT(trace.adapter_names(0), ElementsAre("head_pca", "joint_lowrank"));
  EXPECT_LE(std::filesystem::file_size(kDialogue), 7U << 20);
  const TraceSummary summary = summarise(trace);
  EXPECT_NEAR(summary.perplexity, 14.94, 0.005);
  const AttentionSummary attention = summary.layers[0].attention.value();
  EXPECT_NEAR(attention.entropy_nats, 2.02, 0.005);
  EXPECT_NEAR(attention.top_64_mass, 0.960, 0.0005);
  EXPECT_NEAR(attention.first_16_mass, 0.486, 0.0005);
}

TEST(ShippedTraceTest, IsTheOneThatItsReadmeDescribes) {
  std::ifstream stream(kData / "README.md");
  std::ostringstream readme;
  readme << stream.rdbuf();
  EXPECT_THAT(readme.str(), HasSubstr(TraceReader(kShipped).content_hash()));
  EXPECT_THAT(readme.str(), HasSubstr(TraceReader(kDialogue).content_hash()));
}

/// The figures of traces/data/README.md.
TEST(ShippedTraceTest, Figures) {
  const TraceSummary summary = summarise(TraceReader(kShipped));
  EXPECT_NEAR(summary.perplexity, 32.33, 0.005);
  EXPECT_NEAR(summary.decode_perplexity.value(), 31.64, 0.005);
  const AttentionSummary easy = summary.layers[0].attention.value();
  EXPECT_NEAR(easy.entropy_nats, 2.79, 0.005);
  EXPECT_NEAR(easy.top_16_mass, 0.813, 0.0005);
  EXPECT_NEAR(easy.top_64_mass, 0.904, 0.0005);
  EXPECT_NEAR(easy.top_256_mass, 0.958, 0.0005);
  EXPECT_NEAR(easy.first_16_mass, 0.326, 0.0005);
  EXPECT_NEAR(easy.last_64_mass, 0.531, 0.0005);
  const AttentionSummary hard = summary.layers[1].attention.value();
  EXPECT_NEAR(hard.entropy_nats, 3.20, 0.005);
  EXPECT_NEAR(hard.top_16_mass, 0.700, 0.0005);
  EXPECT_NEAR(hard.top_64_mass, 0.814, 0.0005);
  EXPECT_NEAR(hard.top_256_mass, 0.920, 0.0005);
  EXPECT_NEAR(hard.first_16_mass, 0.470, 0.0005);
  EXPECT_NEAR(hard.last_64_mass, 0.147, 0.0005);
}

TEST(FullTraceTest, TheShippedTraceIsItsCut) {
  const std::string full = full_trace("smollm2-135m-story-4k.kvtrace.h5");
  if (full.empty()) GTEST_SKIP() << "the full recording is absent: set KVREPLAY_FULL_TRACES";
  const TemporaryFolder folder;
  const std::string cut = folder.file("cut.kvtrace.h5");
  cut_trace(TraceReader(full), {.layers = {12, 24}, .decode_tokens = 256}, cut);
  // Not the bytes: the shipped file is older than checksums.
  EXPECT_TRUE(diff_traces(TraceReader(cut), TraceReader(kShipped)).same());
}

TEST(FullTraceTest, TheDialogueIsItsCut) {
  const std::string full = full_trace("smollm2-135m-dialogue-8k.kvtrace.h5");
  if (full.empty()) GTEST_SKIP() << "the full recording is absent: set KVREPLAY_FULL_TRACES";
  const TemporaryFolder folder;
  const std::string cut = folder.file("cut.kvtrace.h5");
  cut_trace(TraceReader(full), {.layers = {18}, .decode_tokens = 256}, cut);
  // Not the bytes: the shipped file is older than checksums.
  EXPECT_TRUE(diff_traces(TraceReader(cut), TraceReader(kDialogue)).same());
}

TEST(FullTraceTest, VerifiesAndKeepsItsPerplexity) {
  const std::string full = full_trace("smollm2-135m-dialogue-8k.kvtrace.h5");
  if (full.empty()) GTEST_SKIP() << "the full recording is absent: set KVREPLAY_FULL_TRACES";
  const TraceReader trace(full);
  trace.verify();
  EXPECT_THAT(trace.info().recorded_layers, ElementsAre(2, 10, 18, 26));
  const TraceSummary summary = summarise(trace);
  EXPECT_NEAR(summary.perplexity, 13.74, 0.005);
  EXPECT_NEAR(summary.decode_perplexity.value(), 10.03, 0.005);
}

}  // namespace
}  // namespace kvreplay
