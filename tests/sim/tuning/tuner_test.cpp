#include "sim/tuning/tuner.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/replay/folder_store.hpp"
#include "sim/replay/results.hpp"
#include "sim/tuning/tuning_report.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class TunerTest : public testing::Test {
 protected:
  TunerTest() {
    write_synthetic_trace(folder_.file("a.kvtrace.h5"), {.prompt = 128, .decode = 12});
    write_synthetic_trace(folder_.file("b.kvtrace.h5"), {.prompt = 96, .decode = 12, .seed = 7});
    const json members = {
        {"title", "test"},
        {"trace", "a.kvtrace.h5"},
        {"system", {"in_memory", "quest", "kvswap"}},
        {"model", "smollm2-135m"},
        {"platform", "oneplus12"},
        {"device", "ufs40"},
        {"batch", 1},
        {"set", {{"system.stream.dense_layers", 0}, {"system.selection.budget_tokens", 32}}},
        {"warm_up_steps", 2},
        {"timed_steps", 4}};
    std::ofstream(folder_.file("test.json")) << members;
  }

  [[nodiscard]] TuneRequest request(const std::string& system) const {
    TuneRequest made;
    made.experiment.experiment = folder_.file("test.json");
    made.system = system;
    made.search = {.evaluations = 6, .population = 4, .seed = 3};
    made.validate.emplace();
    return made;
  }

  TemporaryFolder folder_;
};

std::vector<std::string> names_of(const std::vector<TunedRow>& rows, bool references) {
  std::vector<std::string> names;
  for (const TunedRow& row : rows) {
    if (row.reference == references) names.push_back(row.name);
  }
  return names;
}

std::map<std::string, std::string> by_name(const std::vector<ResultFile>& files) {
  std::map<std::string, std::string> texts;
  for (const ResultFile& file : files) texts[file.name] = file.text;
  return texts;
}

TEST_F(TunerTest, StartsFromTheExperimentsSystemsThatTheTraceAllows) {
  const Tuner tuner(request("any"));
  EXPECT_EQ(tuner.name(), "any");
  // The synthetic trace has no adapters.
  EXPECT_THAT(tuner.left_out(), ElementsAre(testing::AllOf(HasSubstr("kvswap is left out: "),
                                                           HasSubstr("joint_lowrank"))));
  EXPECT_EQ(tuner.work(), 6 + 2);
  const Tuning tuning = tuner.tune(StageStore::none(), nullptr);
  EXPECT_THAT(names_of(tuning.rows, true), ElementsAre("in_memory", "quest"));
  EXPECT_THAT(names_of(tuning.rows, false), testing::SizeIs(6));
  EXPECT_TRUE(tuning.rows[tuning.best].on_front);
  EXPECT_THAT(tuning.about, HasSubstr("smollm2-135m on oneplus12 with ufs40, batch 1"));
  EXPECT_THAT(tuning.space, HasSubstr("parts and parameters: 6 compositions beside 2 systems"));
}

TEST_F(TunerTest, TunesOneSystemAgainstOthers) {
  TuneRequest wanted = request("quest");
  wanted.against = {"in_memory"};
  wanted.hold = {"cache"};
  const Tuner tuner(wanted);
  const Tuning tuning = tuner.tune(StageStore::none(), nullptr);
  EXPECT_THAT(names_of(tuning.rows, true), ElementsAre("in_memory", "quest"));
  for (const TunedRow& row : tuning.rows) {
    if (row.reference || row.variant_of == "in_memory") continue;
    const json found = json::parse(row.composition);
    EXPECT_EQ(found["scoring"]["part"], "min_max") << row.composition;
  }
  // The trace must allow the system that is tuned.
  EXPECT_THAT(user_error_of([&] { static_cast<void>(Tuner(request("kvswap"))); }),
              HasSubstr("joint_lowrank"));
}

TEST_F(TunerTest, TunesTheSystemsInTheComparison) {
  TuneRequest wanted = request("any");
  wanted.search.evaluations = 8;
  wanted.comparison_share = 0.75;  // six evaluations for two systems
  const Tuning tuning = Tuner(wanted).tune(StageStore::none(), nullptr);
  std::map<std::string, std::vector<std::string>> variants;
  for (const TunedRow& row : tuning.rows) {
    if (row.variant_of.empty()) continue;
    variants[row.variant_of].push_back(row.name);
    // Other parameters, the same parts.
    const json own = json::parse(row.composition);
    EXPECT_EQ(own["scoring"]["part"], row.variant_of == "quest" ? "min_max" : "all");
  }
  EXPECT_THAT(variants["quest"], ElementsAre("quest-tuned-1", "quest-tuned-2", "quest-tuned-3"));
  EXPECT_THAT(names_of(tuning.rows, false), testing::SizeIs(8));
  wanted.comparison_share = 0;
  for (const TunedRow& row : Tuner(wanted).tune(StageStore::none(), nullptr).rows) {
    EXPECT_EQ(row.variant_of, "");
  }
}

TEST_F(TunerTest, TheBestIsOfTheSystemThatIsTuned) {
  // Nothing has less error than the whole cache in memory, which is no setting of Quest.
  TuneRequest wanted = request("quest");
  wanted.against = {"in_memory"};
  wanted.goal.max_dram_bytes = std::int64_t{1} << 40;
  wanted.goal.max_latency_ms = 1e9;
  wanted.goal.also = {"quality"};
  const Tuning tuning = Tuner(wanted).tune(StageStore::none(), nullptr);
  const TunedRow& best = tuning.rows[tuning.best];
  EXPECT_EQ(json::parse(best.composition)["scoring"]["part"], "min_max");
  for (const TunedRow& row : tuning.rows) {
    if (row.name != "in_memory") continue;
    EXPECT_FALSE(row.on_front);
    const bool is_better = better(row.score, best.score);
    const std::string answer = answer_text(tuning, {});
    EXPECT_EQ(
        answer.find("Another system is better in lost quality: in_memory (") != std::string::npos,
        is_better);
  }
}

TEST_F(TunerTest, WhatHasALimitIsNotMinimised) {
  TuneRequest wanted = request("any");
  wanted.goal.max_dram_bytes = std::int64_t{1} << 40;
  const Tuning tuning = Tuner(wanted).tune(StageStore::none(), nullptr);
  for (const TunedRow& row : tuning.rows) {
    EXPECT_EQ(row.score.objectives[kDram], 0);
    EXPECT_GT(row.reached[kDram], 0);
    // Nothing is better than the best.
    EXPECT_FALSE(better(row.score, tuning.rows[tuning.best].score)) << row.name;
  }
}

TEST_F(TunerTest, WhatIsFoundReplaysToTheSameNumbers) {
  TuneRequest wanted = request("any");
  wanted.experiment.sets = {"model.weight_bits=4", "device.link_mb_s=900", "seed=3"};
  const Tuner tuner(wanted);
  const Tuning tuning = tuner.tune(StageStore::none(), nullptr);
  std::filesystem::create_directory(folder_.file("out"));
  for (const ResultFile& file : tuner.files(tuning, {}, "the command", StageStore::none())) {
    std::ofstream(folder_.file("out/" + file.name)) << file.text;
  }
  const std::vector<CellResult> cells =
      replay(Experiment::load(folder_.file("out/replay.json"), {}, ConfigFolder::standard())).cells;
  ASSERT_EQ(cells.size(), 1U);
  const CellResult& best = tuning.rows[tuning.best].cell;
  for (const Column<CellResult>& column : result_columns()) {
    if (column.name == "system") continue;
    const CellValue replayed = column.value(cells.front());
    const CellValue judged = column.value(best);
    // A rate of nothing is no number.
    const auto is_none = [](const CellValue& value) {
      const auto* real = std::get_if<double>(&value);
      return real != nullptr && std::isnan(*real);
    };
    if (is_none(replayed) && is_none(judged)) continue;
    EXPECT_EQ(replayed, judged) << column.name;
  }
  // What it was judged with stands in its file.
  const json judged = json::parse(std::ifstream(folder_.file("out/best.json")))["judged_with"];
  EXPECT_EQ(judged["device"], "ufs40");
  EXPECT_EQ(judged["seed"], 3);
  EXPECT_EQ(judged["output_error"], metric(best, "output_error"));
}

TEST_F(TunerTest, AnExperimentDoesNotReplaceWhatWasFoundInPassing) {
  TuneRequest wanted = request("quest");
  wanted.against = {"quest"};
  const Tuner tuner(wanted);
  const Tuning tuning = tuner.tune(StageStore::none(), nullptr);
  std::string text;
  for (const ResultFile& file : tuner.files(tuning, {}, "the command", StageStore::none())) {
    if (file.name == "best.json") text = file.text;
  }
  json best = json::parse(text);
  best["selection"]["budget_tokens"] = 48;
  std::ofstream(folder_.file("best.json")) << best;
  const std::string file = folder_.file("best.json");
  const auto load = [&](const std::vector<std::string>& more) {
    std::vector<std::string> sets{"system=" + file};
    sets.insert(sets.end(), more.begin(), more.end());
    return Experiment::load(folder_.file("test.json"), sets, ConfigFolder::standard());
  };
  EXPECT_THAT(
      user_error_of([&] { static_cast<void>(load({})); }),
      testing::AllOf(HasSubstr("test.json: /set/system.selection.budget_tokens"),
                     HasSubstr("= 32 would replace 48 of " + file), HasSubstr("replay.json"),
                     HasSubstr("--set system.selection.budget_tokens=48")));
  // The command line may, and says so itself.
  const Experiment kept = load({"system.selection.budget_tokens=48"});
  EXPECT_EQ(kept.systems.front().decide.selection.arguments().integer("budget_tokens"), 48);
  const Experiment other = load({"system.selection.budget_tokens=16"});
  EXPECT_EQ(other.systems.front().decide.selection.arguments().integer("budget_tokens"), 16);
}

TEST_F(TunerTest, SaysWhyACompositionIsRefused) {
  TuneRequest wanted = request("quest");
  wanted.validate = {folder_.file("b.kvtrace.h5")};
  const Tuner tuner(wanted);
  Tuning tuning = tuner.tune(StageStore::none(), nullptr);
  tuning.refused = {{"tuned-1", "b: tuned-1 needs x"}, {"tuned-2", "b: tuned-2 needs x"}};
  std::vector<Validation> validations = tuner.validate(tuning, StageStore::none());
  validations.front().refused[tuning.rows[tuning.best].name] = "b: a reason";
  std::erase_if(validations.front().rows,
                [&](const TunedRow& row) { return row.name == tuning.rows[tuning.best].name; });
  const std::string answer = answer_text(tuning, validations);
  EXPECT_THAT(answer, HasSubstr("tuned-1 and 1 more cannot be replayed: b: it needs x"));
  EXPECT_THAT(answer, HasSubstr("cannot be replayed there: b: a reason"));
}

TEST_F(TunerTest, SaysTheSameAgainAndFromAStore) {
  FolderStore store(folder_.file("kept"), 1 << 30);
  const Tuner tuner(request("any"));
  const auto files = [&](StageStore& kept) {
    return by_name(tuner.files(tuner.tune(kept, nullptr), {}, "the command", kept));
  };
  const auto fresh = files(StageStore::none());
  EXPECT_EQ(files(store), fresh);
  EXPECT_EQ(files(store), fresh);
}

TEST_F(TunerTest, ValidatesOnOtherTraces) {
  TuneRequest wanted = request("quest");
  wanted.validate = {folder_.file("b.kvtrace.h5")};
  const Tuner tuner(wanted);
  const Tuning tuning = tuner.tune(StageStore::none(), nullptr);
  const std::vector<Validation> validations = tuner.validate(tuning, StageStore::none());
  ASSERT_EQ(validations.size(), 1U);
  EXPECT_EQ(validations.front().trace, "b");
  EXPECT_TRUE(validations.front().refused.empty());
  std::set<std::string> wanted_rows;
  for (const TunedRow& row : tuning.rows) {
    if (row.on_front || row.reference) wanted_rows.insert(row.name);
  }
  for (const Comparison& one : comparisons(tuning.rows, tuning.goal)) {
    wanted_rows.insert(one.shown().name);
  }
  EXPECT_EQ(validations.front().rows.size(), wanted_rows.size());
  for (const TunedRow& row : validations.front().rows) EXPECT_EQ(row.cell.trace, "b");

  const auto files = by_name(tuner.files(tuning, validations, "the command", StageStore::none()));
  std::vector<std::string> names;
  for (const auto& [name, text] : files) names.push_back(name);
  EXPECT_THAT(names,
              ElementsAre("answer.txt", "best.json", "comparison.csv", "evaluated.csv", "front.csv",
                          "judged.device.json", "judged.model.json", "judged.platform.json",
                          "manifest.json", "replay.json", "validation.b.csv"));
  EXPECT_THAT(files.at("answer.txt"), HasSubstr("On b, which nothing was tuned on:"));
  const json manifest = json::parse(files.at("manifest.json"));
  EXPECT_EQ(manifest["command"], "the command");
  EXPECT_EQ(manifest["tune"]["best"], tuning.rows[tuning.best].name);
  EXPECT_EQ(manifest["tune"]["validated_on"], json::array({"b"}));
  // The best is a system that can be replayed.
  EXPECT_EQ(composition_of(
                SystemSpec::parse(ConfigNode::parse(files.at("best.json"), "best.json"), "best")),
            tuning.rows[tuning.best].composition);
}

TEST_F(TunerTest, RefusesBeforeAnyWork) {
  const auto error_of = [&](const auto& change) {
    TuneRequest wanted = request("quest");
    change(wanted);
    return user_error_of([&] { static_cast<void>(Tuner(wanted)); });
  };
  EXPECT_THAT(error_of([](TuneRequest& wanted) { wanted.hold = {"precisio"}; }),
              testing::AllOf(HasSubstr("--hold"), HasSubstr("'precision'")));
  EXPECT_THAT(error_of([](TuneRequest& wanted) { wanted.exclude = {"grouping/pag"}; }),
              testing::AllOf(HasSubstr("--exclude"), HasSubstr("'grouping/page'")));
  EXPECT_THAT(error_of([](TuneRequest& wanted) { wanted.experiment.sets = {"batch=1,2"}; }),
              HasSubstr("one of each"));
  EXPECT_THAT(error_of([](TuneRequest& wanted) { wanted.validate = {"nothing.kvtrace.h5"}; }),
              HasSubstr("nothing.kvtrace.h5"));
}

}  // namespace
}  // namespace kvreplay
