#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/build_info.hpp"
#include "sim/replay/experiment.hpp"
#include "sim/replay/replay.hpp"
#include "tests/support/temporary_folder.hpp"
#include "traces/operations/cut.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kLastSteps = 16;
// Its half is a multiple of KIVI's residual, so that both leave as many tokens in it.
constexpr std::int64_t kWholeLength = 3072;

/// What DRAM holds in a replay of the shipped story's second half, stretched to the length of the
/// whole, beside a replay of the whole. Every system runs twice: as configs/experiments/all_systems
/// sets it up, with budgets of 256 tokens, and with its own settings, shares of the length among
/// them.
class LongerContext : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const TraceReader story(source_folder() + "/traces/data/smollm2-135m-story-3k.kvtrace.h5");
    folder_ = std::make_unique<TemporaryFolder>();
    const std::int64_t end = story.info().prompt_tokens + kLastSteps;
    for (const std::int64_t length : {kWholeLength / 2, kWholeLength}) {
      cut_trace(story,
                {.window_start = end - length,
                 .prompt_tokens = length - kLastSteps,
                 .decode_tokens = kLastSteps},
                file(length));
    }
    stretched_ =
        run(kWholeLength / 2, {"model.context_tokens=" + std::to_string(kWholeLength)}, true);
    whole_ = run(kWholeLength, {}, true);
    own_stretched_ =
        run(kWholeLength / 2, {"model.context_tokens=" + std::to_string(kWholeLength)}, false);
    own_whole_ = run(kWholeLength, {}, false);
  }
  static void TearDownTestSuite() {
    for (auto* result : {&stretched_, &whole_, &own_stretched_, &own_whole_}) result->reset();
    folder_.reset();
  }

  static std::string file(std::int64_t length) {
    return folder_->file(std::to_string(length) + ".kvtrace.h5");
  }
  static std::unique_ptr<ReplayResult> run(std::int64_t length, std::vector<std::string> sets,
                                           bool small_budgets) {
    const ConfigFolder configs = ConfigFolder::standard();
    sets.insert(sets.end(), {"trace=\"" + file(length) + "\"", "warm_up_steps=0", "timed_steps=2",
                             "prefill_chunk_tokens=0"});
    std::string experiment = configs.file("experiments", "all_systems", {});
    if (!small_budgets) {
      experiment = folder_->file("own.json");
      const nlohmann::json members = {{"title", "own settings"},
                                      {"trace", file(length)},
                                      {"system", configs.names("systems")},
                                      {"model", "llama3.2-1b"},
                                      {"platform", "oneplus12"},
                                      {"device", "ufs40"},
                                      {"batch", 1}};
      std::ofstream(experiment) << members;
    }
    return std::make_unique<ReplayResult>(
        replay(Experiment::load(experiment, sets, configs), {.show_progress = false}));
  }

  /// Compares each system's bytes; `tolerance_of` gives the ratio's distance from 1.
  template <typename Bytes, typename Tolerance>
  static void compare(const ReplayResult& stretched, const ReplayResult& whole, Bytes&& bytes,
                      Tolerance&& tolerance_of) {
    ASSERT_EQ(stretched.cells.size(), whole.cells.size());
    for (std::size_t i = 0; i < whole.cells.size(); ++i) {
      SCOPED_TRACE(whole.cells[i].system);
      ASSERT_EQ(stretched.cells[i].system, whole.cells[i].system);
      const auto expected = static_cast<double>(bytes(whole.cells[i].timing.dram));
      const auto found = static_cast<double>(bytes(stretched.cells[i].timing.dram));
      if (expected == 0) {
        EXPECT_EQ(found, 0);
      } else {
        EXPECT_NEAR(found / expected, 1, tolerance_of(whole.cells[i].system));
      }
    }
  }

  static inline std::unique_ptr<TemporaryFolder> folder_;
  static inline std::unique_ptr<ReplayResult> stretched_;
  static inline std::unique_ptr<ReplayResult> whole_;
  static inline std::unique_ptr<ReplayResult> own_stretched_;
  static inline std::unique_ptr<ReplayResult> own_whole_;
};

TEST_F(LongerContext, HoldsTheIndexOfARecordingOfThatLength) {
  const auto index = [](const DramUse& dram) { return dram.index_bytes; };
  // Clusters are whole: of 18.8 of 80 tokens there are 18, and of 38 as many.
  const auto tolerance = [](const std::string&) { return 1.0 / 18; };
  compare(*stretched_, *whole_, index, tolerance);
  compare(*own_stretched_, *own_whole_, index, tolerance);
}

TEST_F(LongerContext, HoldsAsMuchOutsideGroups) {
  const auto buffered = [](const DramUse& dram) { return dram.buffered_bytes; };
  // How many tokens wait for a cluster depends on the text.
  const auto tolerance = [](const std::string& system) {
    return system.find("dynakv") != std::string::npos ? 0.2 : 0.001;
  };
  compare(*stretched_, *whole_, buffered, tolerance);
  compare(*own_stretched_, *own_whole_, buffered, tolerance);
}

TEST_F(LongerContext, HoldsDenseLayersWhole) {
  const auto dense = [](const DramUse& dram) { return dram.full_attention_bytes; };
  compare(*stretched_, *whole_, dense, [](const std::string&) { return 1e-9; });
}

/// Systems without flash hold what they keep. The widths of DWB are those of its text.
TEST_F(LongerContext, HoldsTheEntriesOfARecordingOfThatLength) {
  const std::set<std::string> learned{"dwb", "dwb_rule"};
  const auto tolerance = [&](const std::string& system) {
    return learned.contains(system) ? 0.03 : 0.004;
  };
  const std::set<std::string> resident{
      "in_memory", "fp8",           "static_int8",    "static_int4",   "static_int2", "kivi_4",
      "kivi_2",    "dwb",           "dwb_rule",       "streaming_llm", "h2o",         "snapkv",
      "arkv",      "arkv_original", "arkv_quantised", "arkv_window"};
  std::size_t found = 0;
  for (const auto& [stretched, whole] :
       {std::pair{stretched_.get(), whole_.get()}, {own_stretched_.get(), own_whole_.get()}}) {
    for (std::size_t i = 0; i < whole->cells.size(); ++i) {
      const std::string& system = whole->cells[i].system;
      if (!resident.contains(system)) continue;
      ++found;
      SCOPED_TRACE(system);
      const auto expected = static_cast<double>(whole->cells[i].timing.dram.cache_bytes);
      EXPECT_NEAR(static_cast<double>(stretched->cells[i].timing.dram.cache_bytes) / expected, 1,
                  tolerance(system));
    }
  }
  EXPECT_EQ(found, 2 * resident.size());
}

/// A cache holds what the text makes a system select: of the same text's other half about as much.
TEST_F(LongerContext, HoldsAboutAsMuchInACache) {
  const auto kv = [](const DramUse& dram) { return dram.kv_bytes(); };
  const auto tolerance = [](const std::string&) { return 0.3; };
  compare(*stretched_, *whole_, kv, tolerance);
  compare(*own_stretched_, *own_whole_, kv, tolerance);
}

TEST_F(LongerContext, HasNoQualityAndSaysWhatItWasStretchedFrom) {
  for (const CellResult& cell : stretched_->cells) {
    EXPECT_EQ(cell.stretched_from_tokens, kWholeLength / 2);
    EXPECT_NE(cell.projection.find("stretched from 1536"), std::string::npos);
  }
}

}  // namespace
}  // namespace kvreplay
