#include "sim/tuning/kvswap_tuner.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/replay/folder_store.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"
#include "traces/operations/cut.hpp"
#include "traces/shipped.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// On a cut of the shipped story, whose adapter has 48 of 192 columns.
class KvSwapTunerTest : public testing::Test {
 protected:
  KvSwapTunerTest() : store_(folder_.file("kept"), 1 << 30) {
    cut_trace(TraceReader(find_trace("story", {})),
              {.window_start = 3072 - 192, .prompt_tokens = 192, .decode_tokens = 12},
              folder_.file("small.kvtrace.h5"));
    const json members = {{"title", "test"},
                          {"trace", "small.kvtrace.h5"},
                          {"system", "kvswap"},
                          {"model", "smollm2-135m"},
                          {"platform", "oneplus12"},
                          {"device", "ufs40"},
                          {"batch", 1},
                          {"set",
                           {{"system.stream.dense_layers", 0},
                            {"system.selection.budget_tokens", 48},
                            {"model.weight_bits", 4}}},
                          {"warm_up_steps", 2},
                          {"timed_steps", 3}};
    std::ofstream(folder_.file("test.json")) << members;
  }

  [[nodiscard]] KvSwapRequest request() const {
    KvSwapRequest made;
    made.experiment.experiment = folder_.file("test.json");
    made.system = "kvswap";
    made.budget_mib = 60;
    made.max_context = 2048;
    made.max_batch = 2;
    made.max_group_tokens = 2;
    return made;
  }

  TemporaryFolder folder_;
  FolderStore store_;
};

TEST_F(KvSwapTunerTest, SolvesEveryBatchAndContextWithinTheBudget) {
  const KvSwapTuner tuner(request());
  EXPECT_EQ(tuner.name(), "kvswap");
  EXPECT_EQ(tuner.work(), 2 * 2);
  EXPECT_THAT(tuner.problem().sigmas, testing::ElementsAre(4, 8, 16, 32));
  EXPECT_THAT(tuner.problem().group_sizes, testing::ElementsAre(1, 2));
  const KvSwapTuner::Solved solved = tuner.solve(store_, nullptr);
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  for (const KvSwapTuner::Solution& one : solved.solutions) {
    places.emplace_back(one.context_tokens, one.batch);
    ASSERT_TRUE(one.found);
    EXPECT_EQ(one.found->memory_bytes,
              kvswap_memory_bytes(tuner.problem(), one.found->setting, one.context_tokens));
    EXPECT_LE(one.found->memory_bytes, tuner.problem().budget_bytes);
    EXPECT_TRUE(solved.measured.reuse_rate.contains(one.found->setting));
  }
  EXPECT_THAT(places, testing::ElementsAre(std::pair(1024, 1), std::pair(1024, 2),
                                           std::pair(2048, 1), std::pair(2048, 2)));
  EXPECT_FALSE(solved.measured.synthetic);

  // A second time, from the store, and on one thread.
  const std::string text = tuner.files(solved, "").front().text;
  EXPECT_EQ(tuner.files(tuner.solve(store_, nullptr), "").front().text, text);
  KvSwapRequest alone = request();
  alone.experiment.sets = {"threads=1"};
  const KvSwapTuner on_one_thread(alone);
  EXPECT_EQ(on_one_thread.files(on_one_thread.solve(store_, nullptr), "").front().text, text);

  // The written solutions are found again.
  std::map<std::string, std::string> files;
  for (const ResultFile& file : tuner.files(solved, "the command")) files[file.name] = file.text;
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files.at("table.txt"), KvSwapTuner::table(solved));
  EXPECT_EQ(json::parse(files.at("manifest.json"))["command"], "the command");
  const std::string solutions = folder_.file("solutions.json");
  std::ofstream(solutions) << files.at("solutions.json");
  const LookedUpSolution exact = look_up_solution(solutions, 2, 1024);
  EXPECT_EQ(exact.batch, 2);
  EXPECT_EQ(exact.context_tokens, 1024);
  const json system = json::parse(exact.system);
  EXPECT_EQ(system["scoring"]["sigma"], solved.solutions[1].found->setting.sigma);
  EXPECT_EQ(system["cache"]["capacity_groups"], solved.solutions[1].found->setting.capacity_groups);
  EXPECT_EQ(look_up_solution(solutions, 1, 1100).context_tokens, 1024);
  EXPECT_THAT(user_error_of([&] { static_cast<void>(look_up_solution(solutions, 1, 1 << 30)); }),
              AllOf(HasSubstr("--context"), HasSubstr("60.0 MiB")));
}

TEST_F(KvSwapTunerTest, TableSaysWhatDoesNotFitAndWhatIsNotHidden) {
  KvSwapTuner::Solved solved;
  solved.solutions.push_back({1, 1024, std::nullopt});
  KvSwapSolution found{2, 1024, {8, 4, 24}, 3 << 20, {}, false};
  found.measured = {.latency_ms = 12.5,
                    .compute_ms = 10,
                    .io_ms = 5,
                    .exposed_io_ms = 2.5,
                    .reuse_rate = 0.5,
                    .attention_mass = 0.9};
  solved.solutions.push_back({2, 1024, found});
  EXPECT_EQ(KvSwapTuner::table(solved),
            "batch  context  G   sigma  C      memory_mib  latency_ms  compute_ms  io_ms   "
            "hidden_io  reuse  attention_mass\n"
            "1      1024     does not fit into the budget, even at the largest sigma\n"
            "2      1024     4   8      24     3.0         12.50       10.00       5.00    "
            "0.500      0.500  0.9000  (not hidden; the fastest one tried)\n");
}

TEST_F(KvSwapTunerTest, Refuses) {
  const auto error_of = [&](const auto& change) {
    KvSwapRequest wanted = request();
    change(wanted);
    return user_error_of([&] { static_cast<void>(KvSwapTuner(wanted)); });
  };
  EXPECT_THAT(error_of([](KvSwapRequest& wanted) { wanted.max_context = 0; }),
              AllOf(HasSubstr("--max-context"), HasSubstr("tokens such as 16K")));
  EXPECT_THAT(error_of([](KvSwapRequest& wanted) { wanted.max_context = 100; }),
              HasSubstr("at least the 204 tokens"));
  EXPECT_THAT(error_of([](KvSwapRequest& wanted) { wanted.system = "quest"; }),
              HasSubstr("composed like kvswap"));
  EXPECT_THAT(error_of([](KvSwapRequest& wanted) {
                wanted.experiment.sets = {"device=[\"ufs40\", \"emmc51\"]"};
              }),
              HasSubstr("one of each"));
  EXPECT_THAT(error_of([](KvSwapRequest& wanted) { wanted.max_sigma = 2; }), HasSubstr("sigma"));
  KvSwapRequest small = request();
  small.budget_mib = 1;
  EXPECT_THAT(user_error_of([&] { static_cast<void>(KvSwapTuner(small).solve(store_, nullptr)); }),
              AllOf(HasSubstr("--budget-mib"), HasSubstr("found 1")));
}

TEST_F(KvSwapTunerTest, LooksUpOnlyWhatItWrote) {
  const std::string file = folder_.file("other.json");
  std::ofstream(file) << R"({"format": "another"})";
  EXPECT_THAT(user_error_of([&] { static_cast<void>(look_up_solution(file, 1, 1024)); }),
              AllOf(HasSubstr("other.json"), HasSubstr("kvreplay kvswap solutions 2")));
}

}  // namespace
}  // namespace kvreplay
