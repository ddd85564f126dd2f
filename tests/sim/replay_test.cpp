#include "sim/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "sim/results.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"

namespace kvreplay {
namespace {

using nlohmann::json;

const std::string kSource = KVREPLAY_SOURCE_DIR;

class ReplayTest : public testing::Test {
 protected:
  ReplayTest() {
    write_synthetic_trace(folder_.file("a.kvtrace.h5"));
    write_synthetic_trace(folder_.file("b.kvtrace.h5"), {.prompt = 200, .decode = 20, .seed = 2});
  }

  Experiment load(const std::vector<std::string>& sets) {
    const json members = {
        {"title", "test"},
        {"trace", {"a.kvtrace.h5", "b.kvtrace.h5"}},
        {"system", {"in_memory", "flexgen", "quest", "clusterkv"}},
        {"model", {"smollm2-135m", "llama3.2-1b"}},
        {"platform", "orin_agx"},
        {"device", {"emmc51", "ufs40"}},
        {"batch", {1, 2}},
        {"set", {{"system.selection.budget_tokens", 64}, {"system.stream.dense_layers", 0}}},
        {"warm_up_steps", 4},
        {"timed_steps", 6}};
    std::ofstream(folder_.file("test.json")) << members;
    return Experiment::load(folder_.file("test.json"), sets, ConfigFolder(kSource + "/configs"));
  }

  TemporaryFolder folder_;
};

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST_F(ReplayTest, EveryCellOnceInOrderAndConsistent) {
  const Experiment experiment = load({});
  const ReplayResult result = replay(experiment);
  ASSERT_EQ(result.cells.size(), 2U * 4 * 2 * 2 * 2);
  EXPECT_EQ(result.layers.size(), 2U * 4 * 2);
  EXPECT_EQ(result.cells[0].system, "in_memory");
  EXPECT_EQ(result.cells[1].system, "flexgen");
  EXPECT_EQ(result.cells[4].device, "ufs40");
  EXPECT_EQ(result.cells[8].batch, 2);
  EXPECT_EQ(result.cells[16].model, "llama3.2-1b");
  EXPECT_EQ(result.cells[32].trace, "b");

  for (const CellResult& cell : result.cells) {
    const Timing& timing = cell.timing;
    ASSERT_EQ(timing.steps.size(), 6U);
    EXPECT_EQ(timing.asked_bytes, timing.hit_bytes + timing.missed_bytes);
    std::int64_t read_bytes = 0;
    for (const StepTiming& step : timing.steps) {
      EXPECT_EQ(step.latency_ns, step.compute_ns + step.exposed_io_ns);
      EXPECT_LE(step.exposed_io_ns, step.busy_io_ns);
      read_bytes += step.read_bytes;
    }
    EXPECT_GE(read_bytes, timing.missed_bytes);
    EXPECT_GE(timing.flash_read_bytes, read_bytes);
    EXPECT_NE(cell.projection, "none");
    if (cell.system == "in_memory") {
      EXPECT_EQ(read_bytes, 0);
      EXPECT_EQ(timing.hit_bytes, timing.asked_bytes);
    } else {
      EXPECT_GT(read_bytes, 0) << cell.system;
    }
    if (cell.system == "flexgen" || cell.system == "in_memory") {
      EXPECT_EQ(cell.quality.recall, 1);
      EXPECT_EQ(cell.quality.attention_mass, 1);
      EXPECT_EQ(cell.quality.output_error, 0);
    } else {
      EXPECT_LT(cell.quality.attention_mass, 1);
      EXPECT_GT(cell.quality.attention_mass, 0);
    }
  }
}

TEST_F(ReplayTest, OneThreadOrTwoTheSameBytes) {
  for (const char* threads : {"1", "2"}) {
    const Experiment experiment = load({std::string("threads=") + threads});
    const ReplayResult result = replay(experiment);
    write_results(folder_.file(threads), experiment, result);
  }
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.file("1"))) {
    files.insert(entry.path().filename().string());
    EXPECT_EQ(content_of(entry.path()), content_of(folder_.file("2") / entry.path().filename()))
        << entry.path();
  }
  EXPECT_THAT(files, testing::ElementsAre("manifest.json", "quality.csv", "results.csv",
                                          "results.json", "table.txt"));
}

TEST_F(ReplayTest, ACellDoesNotDependOnTheOthers) {
  const ReplayResult all = replay(load({}));
  const ReplayResult one = replay(load({"trace=" + folder_.file("b.kvtrace.h5"), "system=quest",
                                        "model=llama3.2-1b", "device=ufs40", "batch=2"}));
  ASSERT_EQ(one.cells.size(), 1U);
  const std::string alone = results_csv(one.cells);
  const std::string row = alone.substr(alone.find('\n') + 1);
  EXPECT_NE(results_csv(all.cells).find("\n" + row), std::string::npos);
}

TEST(Results, ColumnsAreDocumented) {
  const std::string page = content_of(kSource + "/docs/metrics.md");
  std::set<std::string> names;
  for (const Column<CellResult>& column : result_columns()) {
    EXPECT_TRUE(names.insert(column.name).second) << column.name << " twice";
    EXPECT_NE(page.find("`" + column.name + "`"), std::string::npos)
        << column.name << " is not in docs/metrics.md";
    EXPECT_FALSE(column.help.empty()) << column.name;
  }
  for (const Column<LayerQuality>& column : quality_columns()) {
    EXPECT_NE(page.find("`" + column.name + "`"), std::string::npos) << column.name;
  }
}

CellResult made_up_cell(const std::string& system, SimTime latency_ns) {
  CellResult cell;
  cell.trace = "a";
  cell.system = system;
  cell.projection = "1,2 \"x\"";
  cell.timing.steps.push_back({.latency_ns = latency_ns, .compute_ns = latency_ns});
  return cell;
}

TEST(Results, CsvQuotesAndLeavesUndefinedRatiosEmpty) {
  const std::vector<CellResult> cells{made_up_cell("one", 1'000'000)};
  const std::string csv = results_csv(cells);
  EXPECT_NE(csv.find(",\"1,2 \"\"x\"\"\","), std::string::npos);
  const json row = json::parse(results_json(cells)).at(0);
  EXPECT_EQ(row.at("hit_rate"), nullptr);
  EXPECT_EQ(row.at("read_amplification"), nullptr);
  EXPECT_EQ(row.at("tokens_per_s"), 1000.0);
  EXPECT_EQ(row.at("latency_ms"), 1.0);
}

TEST(Results, TheTableShowsOnceWhatIsTheSameEverywhere) {
  const std::vector<CellResult> cells{made_up_cell("one", 1'000'000),
                                      made_up_cell("two", 2'500'000)};
  const std::string table = results_table(cells);
  EXPECT_EQ(table.find("trace: a\n"), 0U);
  EXPECT_NE(table.find("\none "), std::string::npos);
  EXPECT_NE(table.find("1000.00"), std::string::npos);
  EXPECT_NE(table.find("400.00"), std::string::npos);
  EXPECT_EQ(results_table({}), "");
}

}  // namespace
}  // namespace kvreplay
