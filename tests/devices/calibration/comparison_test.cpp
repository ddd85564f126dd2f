// Compares every published table with its preset: the median error stays within the limit that the
// table states.

#include "devices/calibration/comparison.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "base/error.hpp"
#include "tests/support/configs.hpp"

namespace kvreplay {
namespace {

std::set<std::string> files(const std::string& folder) {
  std::set<std::string> found;
  for (const auto& file : std::filesystem::directory_iterator(kConfigs + "/" + folder)) {
    if (file.path().extension() == ".json") found.insert(file.path().string());
  }
  return found;
}

ConfigNode preset_of(const MeasuredTable& table) {
  return ConfigNode::load(kConfigs + "/devices/" + table.preset + ".json");
}

TEST(MeasuredTables, MediansStayAtWhatIsStated) {
  std::set<std::string> presets;
  for (const std::string& file : files("measurements")) {
    const MeasuredTable table = MeasuredTable::load(file);
    EXPECT_EQ(table.name, std::filesystem::path(file).stem().string());
    EXPECT_FALSE(table.source.empty()) << file;
    const double median = median_error_percent(compare(preset_of(table), table, 2));
    std::printf("%-24s %-12s %-8s median error %6.1f %%, stated %6.1f %%\n", table.name.c_str(),
                table.preset.c_str(), table.fitted ? "fit" : "held out", median,
                table.allowed_median_percent);
    EXPECT_LE(median, table.allowed_median_percent) << table.name;
    // The stated limit must not be looser than needed.
    EXPECT_GE(median, table.allowed_median_percent - 1) << table.name;
    presets.insert(table.preset);
  }
  for (const std::string& file : files("devices")) {
    EXPECT_TRUE(presets.contains(std::filesystem::path(file).stem().string())) << file;
  }
}

std::string table_json(const std::string& rows, const std::string& use = "fit") {
  return R"({"name": "t", "title": "t", "source": "s", "preset": "ufs40", "use": ")" + use +
         R"(", "pattern": "random", "quantity": "mb_s", "allowed_median_percent": 5, "rows": )" +
         rows + "}";
}

TEST(MeasuredTables, ErrorsAreOfTheModelAgainstTheMeasurement) {
  const MeasuredTable table = MeasuredTable::parse(
      ConfigNode::parse(table_json("[[4096, 1, 20], [4096, 1, 40], [4096, 1, 60]]"), "t.json"));
  const auto rows = compare(preset_of(table), table, 1);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].model, rows[2].model);
  EXPECT_GT(rows[0].error_percent(), rows[1].error_percent());
  EXPECT_DOUBLE_EQ(rows[1].error_percent(), 100 * (rows[1].model / 40 - 1));

  std::vector<ComparedRow> four;
  for (const double model : {110.0, 70.0, 101.0, 80.0}) four.push_back({{4096, 1, 100}, model});
  EXPECT_NEAR(median_error_percent(four), 15, 1e-9);
  four.pop_back();
  EXPECT_NEAR(median_error_percent(four), 10, 1e-9);
}

TEST(MeasuredTables, MistakesAreNamed) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      (void)MeasuredTable::parse(ConfigNode::parse(text, "t.json"));
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal(table_json("[[4096, 1]]")), "[bytes, depth, mb_s]");
  expect(refusal(table_json("[[4096, 0, 5]]")), "t.json: /rows/0/1");
  expect(refusal(table_json("[[4096, 1, \"fast\"]]")), "/rows/0/2");
  expect(refusal(table_json("[]")), "at least one");
  expect(refusal(table_json("[[4096, 1, 5]]", "fitted")), "did you mean 'fit'");
}

}  // namespace
}  // namespace kvreplay
