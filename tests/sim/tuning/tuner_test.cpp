#include "sim/tuning/tuner.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/replay/folder_store.hpp"
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
    if (row.reference) continue;
    const json found = json::parse(row.composition);
    EXPECT_EQ(found["scoring"]["part"], "min_max") << row.composition;
  }
  // The trace must allow the system that is tuned.
  EXPECT_THAT(user_error_of([&] { static_cast<void>(Tuner(request("kvswap"))); }),
              HasSubstr("joint_lowrank"));
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
  EXPECT_EQ(validations.front().problem, "");
  std::size_t wanted_rows = 0;
  for (const TunedRow& row : tuning.rows) wanted_rows += row.on_front || row.reference ? 1 : 0;
  EXPECT_EQ(validations.front().rows.size(), wanted_rows);
  for (const TunedRow& row : validations.front().rows) EXPECT_EQ(row.cell.trace, "b");

  const auto files = by_name(tuner.files(tuning, validations, "the command", StageStore::none()));
  std::vector<std::string> names;
  for (const auto& [name, text] : files) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("answer.txt", "best.json", "comparison.csv", "evaluated.csv",
                                 "front.csv", "manifest.json", "validation.b.csv"));
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
