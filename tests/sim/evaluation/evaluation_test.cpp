#include "sim/evaluation/evaluation.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "sim/evaluation/evaluation_columns.hpp"
#include "sim/evaluation/own_trace.hpp"
#include "sim/replay/system.hpp"
#include "tests/support/random_model.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> labels_of(const std::vector<EvaluationCell>& cells) {
  std::vector<std::string> labels;
  for (const EvaluationCell& cell : cells) {
    labels.push_back(cell.system + "/" + cell.budget + "/" + cell.unit);
  }
  return labels;
}

TEST(EvaluationCells, OneForEachValueOfASystemsBudget) {
  const std::vector<EvaluationCell> cells =
      make_cells({.systems = {"quest", "kivi_4", "in_memory", "h2o"},
                  .budgets = {64, 128},
                  .bits = {2},
                  .prompt = 256});
  EXPECT_THAT(labels_of(cells), ElementsAre("quest/64/tokens", "quest/128/tokens", "kivi_4/2/bits",
                                            "in_memory//", "h2o/64/tokens", "h2o/128/tokens"));
  EXPECT_EQ(cells[1].decide.name, "quest 128 tokens");
  EXPECT_EQ(cells[3].decide.name, "in_memory");
  const auto quest = nlohmann::json::parse(cells[1].decide.spec.resolved());
  EXPECT_EQ(quest["selection"]["budget_tokens"], 128);
}

TEST(EvaluationCells, SharesOfAPromptNeedOne) {
  const EvaluationRequest text{.systems = {"h2o"}, .budgets = {64}, .prompt = 256};
  EvaluationRequest needles = text;
  needles.needle = true;
  EXPECT_THAT(labels_of(make_cells(text)), ElementsAre("h2o/64/tokens"));
  EXPECT_THAT(labels_of(make_cells(needles)), ElementsAre("h2o//"));
}

TEST(EvaluationCells, SetTakesThePlaceOfABudget) {
  const std::vector<EvaluationCell> cells =
      make_cells({.systems = {"quest", "in_memory"},
                  .budgets = {64},
                  .sets = {"quest.grouping.group_tokens=8,32"}});
  EXPECT_THAT(labels_of(cells),
              ElementsAre("quest/8/group_tokens", "quest/32/group_tokens", "in_memory//"));
}

TEST(EvaluationCells, RefuseWhatIsNoSetting) {
  const auto error_of = [](const std::string& set) {
    return user_error_of(
        [&] { static_cast<void>(make_cells({.systems = {"quest"}, .sets = {set}})); });
  };
  for (const char* set : {"quest", "quest.a.b", "=1", "quest=1"}) {
    EXPECT_THAT(error_of(set), AllOf(HasSubstr("--set"), HasSubstr("SYSTEM.PART.PARAMETER")))
        << set;
  }
  EXPECT_THAT(error_of("ques.grouping.group_tokens=8"), HasSubstr("'quest'"));
  EXPECT_THAT(error_of("quest.grouping.group_tokens="), HasSubstr("values"));
  EXPECT_THAT(error_of("quest.grouping.group_token=8"), HasSubstr("group_tokens"));
  EXPECT_THAT(user_error_of([] { static_cast<void>(make_cells({.systems = {"ques"}})); }),
              AllOf(HasSubstr("--systems"), HasSubstr("'quest'")));
}

TEST(EvaluationTables, RoundNumbersForTheTableAlone) {
  const std::vector<std::string> names{"quest", ""};
  const std::vector<double> values{1.23456, std::nan("")};
  const std::vector<EvaluationColumn> columns{
      {"system", [&](std::size_t i) { return names[i]; }, 0, false},
      {"kl", [&](std::size_t i) { return number_field(values[i]); }, 2, true}};
  EXPECT_EQ(csv_text(columns, 2), "system,kl\nquest,1.23456\n,\n");
  EXPECT_EQ(table_text(columns, 2), "system    kl\nquest   1.23\n-          -\n");
}

class EvaluationTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    write_random_model(folder_->file("random.kvmodel"));
    model_ = std::make_unique<Model>(folder_->file("random.kvmodel"));
    Random random(3);
    for (int i = 0; i < 160; ++i) {
      text_.ids.push_back(static_cast<std::int32_t>(random.below(101)));
    }
    text_.source = "random";
    text_.sha256 = std::string(64, 'a');
  }
  static void TearDownTestSuite() {
    model_.reset();
    folder_.reset();
  }

  static EvaluationRequest request() {
    return {.systems = {"quest"},
            .budgets = {16, 64},
            .sets = {},
            .prompt = 80,
            .steps = 12,
            .threads = 2};
  }

  static std::map<std::string, std::string> by_name(const EvaluationResult& result) {
    std::map<std::string, std::string> texts;
    for (const ResultFile& file : result.files) texts[file.name] = file.text;
    EXPECT_EQ(texts.at("table.txt"), result.table);
    return texts;
  }

  static inline std::unique_ptr<TemporaryFolder> folder_;
  static inline std::unique_ptr<Model> model_;
  static inline ModelText text_;
};

TEST_F(EvaluationTest, FollowsATextAndLeavesNoTrace) {
  const TemporaryFolder folder;
  const std::vector<EvaluationCell> cells = make_cells(request());
  const EvaluationResult result =
      evaluate_text(request(), *model_, text_, cells, folder.path().string());
  EXPECT_TRUE(folder.is_empty());
  const auto files = by_name(result);
  ASSERT_EQ(files.size(), 5U);
  EXPECT_THAT(
      files.at("closed_loop.csv"),
      HasSubstr("system,budget,budget_unit,attended_tokens,stored_bits,perplexity,"
                "full_perplexity,kl_nats,agreement,attention_mass,output_error,residual_error,"
                "worst_layer,worst_layer_error,coarse_channels,recall\n"
                "quest,16,tokens,"));
  EXPECT_THAT(files.at("layers.csv"), HasSubstr("quest"));
  // The steps of full attention and of each cell.
  const std::string& steps = files.at("steps.csv");
  EXPECT_EQ(std::count(steps.begin(), steps.end(), '\n'), 1 + 3 * 12);
  const std::string& ranks = files.at("ranks.csv");
  EXPECT_EQ(std::count(ranks.begin(), ranks.end(), '\n'), 1 + 2 * 4);
  EXPECT_THAT(result.table, HasSubstr("Rank correlation of the two loops"));

  const auto manifest =
      nlohmann::json::parse(evaluation_manifest(request(), *model_, text_, cells));
  EXPECT_EQ(manifest["text_sha256"], text_.sha256);
  EXPECT_EQ(manifest["prompt_tokens"], 80);
  EXPECT_TRUE(manifest["systems"].contains("quest 64 tokens"));
}

TEST_F(EvaluationTest, RefusesATextThatIsTooShort) {
  const TemporaryFolder folder;
  EvaluationRequest wanted = request();
  wanted.steps = 500;
  EXPECT_THAT(user_error_of([&] {
                static_cast<void>(evaluate_text(wanted, *model_, text_, make_cells(wanted),
                                                folder.path().string()));
              }),
              HasSubstr("580"));
}

TEST_F(EvaluationTest, SaysWhichOptionASystemMisses) {
  const TemporaryFolder folder;
  EvaluationRequest wanted = request();
  wanted.systems = {"kvswap"};
  EXPECT_THAT(user_error_of([&] {
                static_cast<void>(evaluate_text(wanted, *model_, text_, make_cells(wanted),
                                                folder.path().string()));
              }),
              HasSubstr("--adapter-trace"));
  EXPECT_TRUE(folder.is_empty());
}

/// A token for each letter.
std::vector<std::int32_t> letters(const std::string& text) {
  std::vector<std::int32_t> ids;
  for (const char letter : text) ids.push_back(static_cast<unsigned char>(letter) % 101);
  return ids;
}

TEST_F(EvaluationTest, PlantsNeedles) {
  const TemporaryFolder folder;
  EvaluationRequest wanted = request();
  wanted.needle = true;
  wanted.lengths = {96, 120};
  wanted.depths = {0, 1};
  const std::vector<EvaluationCell> cells = make_cells(wanted);
  const EvaluationResult result =
      evaluate_needles(wanted, *model_, text_, cells, folder.path().string(), letters);
  EXPECT_TRUE(folder.is_empty());
  const auto files = by_name(result);
  const std::string& rows = files.at("needle.csv");
  EXPECT_THAT(rows, testing::StartsWith("system,budget,budget_unit,length,depth,"
                                        "answer_log_probability,answer_accuracy\nfull,,,96,0,"));
  // Full attention and each cell, for every length and depth.
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 1 + 3 * 2 * 2);
  wanted.lengths = {1000};
  EXPECT_THAT(user_error_of([&] {
                static_cast<void>(evaluate_needles(wanted, *model_, text_, cells,
                                                   folder.path().string(), letters));
              }),
              AllOf(HasSubstr("--lengths"), HasSubstr("1000")));
}

TEST_F(EvaluationTest, KnowsItsOwnText) {
  const TemporaryFolder folder;
  const OwnTrace own(*model_, text_,
                     {.folder = folder.path().string(), .prompt_tokens = 80, .steps = 4});
  EXPECT_EQ(own.trace().info().tokens, 84);
  const std::string file = folder.file("own.kvtrace.h5");
  EXPECT_TRUE(is_trace_of(file, text_));
  ModelText other = text_;
  other.sha256 = std::string(64, 'b');
  EXPECT_FALSE(is_trace_of(file, other));
  other.sha256 = "";
  EXPECT_FALSE(is_trace_of(file, other));
}

}  // namespace
}  // namespace kvreplay
