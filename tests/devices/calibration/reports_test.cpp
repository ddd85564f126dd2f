// Comparisons, calibrations and grids as text for people and as CSV.

#include <gmock/gmock.h>

#include <algorithm>

#include "base/config_folder.hpp"
#include "base/output_file.hpp"
#include "devices/calibration/calibration_report.hpp"
#include "devices/calibration/comparison_report.hpp"
#include "devices/calibration/fitted_point.hpp"
#include "devices/calibration/measure_grid.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ComparedTable two_rows() {
  ComparedTable compared;
  compared.table.name = "ufs40_test";
  compared.table.preset = "ufs40";
  compared.table.title = "a phone";
  compared.table.quantity = "mb_s";
  compared.rows = {{{4096, 1, 100}, 110}, {{131072, 32, 2000}, 1500}};
  return compared;
}

TEST(ComparisonReport, Text) {
  const std::vector<ComparedTable> all{two_rows()};
  EXPECT_EQ(
      comparison_text(all, false),
      "table                    preset       use        rows median error % greatest error %\n"
      "ufs40_test               ufs40        held out      2           17.5             25.0\n");
  EXPECT_THAT(comparison_text(all, true),
              HasSubstr("25.0\n"
                        "          4K depth 1    measured      100.0  model      110.0 mb_s      "
                        "+10.0 %\n"
                        "        128K depth 32   measured     2000.0  model     1500.0 mb_s      "
                        "-25.0 %\n"));
}

TEST(ComparisonReport, MarkdownAndCsv) {
  const std::vector<ComparedTable> all{two_rows()};
  EXPECT_EQ(comparison_markdown(all),
            "| preset | measurement | use | rows | median error % | greatest | assumed |\n"
            "|---|---|---|---|---|---|---|\n"
            "| ufs40 | a phone (`ufs40_test`) | held out | 2 | 17.5 | 25.0 |  |\n");
  EXPECT_THAT(comparison_csv(all),
              HasSubstr("\nufs40_test,ufs40,held out,random,0,mb_s,4096,1,100,110,10.000\n"));
}

TEST(ComparisonReport, FindsTablesByNameAndPreset) {
  const ConfigFolder configs = ConfigFolder::standard();
  const std::vector<MeasuredTable> all = find_measured_tables(configs, {});
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(std::is_sorted(
      all.begin(), all.end(),
      [](const MeasuredTable& a, const MeasuredTable& b) { return a.preset < b.preset; }));
  EXPECT_EQ(find_measured_tables(configs, {all.front().name}).size(), 1U);
  for (const MeasuredTable& table : find_measured_tables(configs, {"ufs40"})) {
    EXPECT_EQ(table.preset, "ufs40");
  }
  EXPECT_THAT(user_error_of([&] { static_cast<void>(find_measured_tables(configs, {"ufs4"})); }),
              HasSubstr("unknown table or preset 'ufs4'"));
}

TEST(ComparisonReport, AFileOfADeviceStandsForTheTablesOfItsBase) {
  const ConfigFolder configs = ConfigFolder::standard();
  const TemporaryFolder folder;
  write_text_file(folder.file("first.json"), R"({"base": "ufs40", "title": "A", "link_mb_s": 9})");
  write_text_file(folder.file("mine.json"), R"({"base": "./first.json", "title": "Mine"})");
  const std::string mine = folder.file("mine.json");
  const std::vector<MeasuredTable> found = find_measured_tables(configs, {mine});
  EXPECT_EQ(found.size(), find_measured_tables(configs, {"ufs40"}).size());
  for (const MeasuredTable& table : found) {
    EXPECT_EQ(table.preset, mine);
    EXPECT_FALSE(table.fitted);
  }
  write_text_file(folder.file("alone.json"), R"({"title": "Alone", "part": "waves"})");
  EXPECT_THAT(user_error_of([&] {
                static_cast<void>(find_measured_tables(configs, {folder.file("alone.json")}));
              }),
              AllOf(HasSubstr("alone.json"), HasSubstr("--device")));
}

TEST(ComparisonReport, PointsOfAMeasurementAreThoseOfTheModel) {
  const ConfigNode device = ConfigFolder::standard().find("devices", "ufs40", {});
  MeasuredPoints measured;
  measured.source = "a probe";
  for (const double share : {0.0, 0.3, 1.0}) {
    measured.points.push_back({.bytes = 4096,
                               .depth = 8,
                               .range_bytes = 1 << 30,
                               .iops = 1000,
                               .mean_us = 100,
                               .write_share = share,
                               .requests = share > 0 ? 4000U : 0U});
  }
  const std::vector<ComparedTable> all =
      compare_points(device, "mine", "x/probe.json", measured, 2);
  ASSERT_EQ(all.size(), 6U);  // IOPS and latency, of three shares of writes
  EXPECT_EQ(all[1].table.name, "probe mix30");
  EXPECT_EQ(all[1].table.preset, "mine");
  EXPECT_EQ(all[0].rows.at(0).measured.value, 1000);
  EXPECT_EQ(all[3].rows.at(0).measured.value, 100);

  std::vector<FittedPoint> points;
  for (const MeasuredPoint& point : measured.points) points.push_back({.measured = point});
  run_model(device, false, points, 1);
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(all[i].rows.at(0).model, points[i].iops);
    EXPECT_EQ(all[i + 3].rows.at(0).model, points[i].mean_us);
    EXPECT_GT(points[i].iops, 0);
  }
}

Calibration three_points() {
  Calibration calibration;
  const auto add = [&](double write_share, PointUse use, double read_us, double write_us) {
    FittedPoint point;
    point.measured = {.bytes = 4096,
                      .depth = 8,
                      .iops = 1000,
                      .mean_us = 100,
                      .write_share = write_share,
                      .read_us = read_us,
                      .write_us = write_us};
    point.use = use;
    point.iops = 1100;
    point.mean_us = 90;
    point.read_us = 80;
    point.write_us = 120;
    calibration.points.push_back(point);
  };
  add(0, PointUse::kFitted, 0, 0);
  add(0, PointUse::kHeldOut, 0, 0);
  add(0.3, PointUse::kPredicted, 100, 0);  // writes were not reported separately
  calibration.fitted = {{"channels", 4}, {"write_latency_us", 12.5}};
  calibration.decided_by_writes = {"write_latency_us"};
  calibration.from_burst = {{"service_order", "random"}};
  calibration.undetermined = {{"dies", 8}};
  return calibration;
}

TEST(CalibrationReport, Text) {
  EXPECT_EQ(
      calibration_text(three_points(), 0.75),
      "\nReads, fitted\n"
      "    size  depth        IOPS       model    error     mean us       model    error\n"
      "      4K      8        1000        1100   +10.0%       100.0        90.0   -10.0%\n"
      "\nReads, held out\n"
      "    size  depth        IOPS       model    error     mean us       model    error\n"
      "      4K      8        1000        1100   +10.0%       100.0        90.0   -10.0%\n"
      "\nMixes, predicted\n"
      "    size  depth writes %        IOPS       model    error     read us       model    error "
      "   write us       model    error\n"
      "      4K      8       30        1000        1100   +10.0%       100.0        80.0   -20.0% "
      "                  120.0         \n"
      "\n"
      "Error of IOPS: reads fitted median 10.0 %, greatest 10.0 % of 1 points, held out median "
      "10.0 %, greatest 10.0 % of 1 points\n"
      "Error of IOPS: mixes predicted median 10.0 %, greatest 10.0 % of 1 points (latency of their "
      "reads median 20.0 %, greatest 20.0 %)\n"
      "channels                      4\n"
      "write_latency_us           12.5  by the writes\n"
      "service_order            random  by the burst, mixing 0.75\n"
      "dies                          8  the base's; these points do not determine it\n");
}

TEST(CalibrationReport, NotesAndCsv) {
  const Calibration calibration = three_points();
  EXPECT_FALSE(predicts_writes(calibration));
  EXPECT_THAT(calibration_notes(calibration, "ufs40"),
              testing::AllOf(testing::StartsWith("Fitted to random reads, beginning at ufs40. "),
                             testing::EndsWith(". Writes are not fitted.")));
  EXPECT_THAT(
      calibration_csv(calibration),
      testing::AllOf(testing::StartsWith("kind,use,write_share,bytes,depth,iops,model_iops,"),
                     HasSubstr("\nmixes,predicted,0.3,4096,8,1000.0,1100.0,100.000,90.000,100.000,"
                               "80.000,,120.000\n")));
}

TEST(MeasureGrid, TextAndCsvOfAModel) {
  const ConfigFolder configs = ConfigFolder::standard();
  const DeviceSpec spec = DeviceSpec::load(configs.file("devices", "emmc51", {}));
  Grid grid;
  grid.sizes = {4096, 131072};
  grid.depths = {1, 8};
  grid.range_bytes = 1 << 30;
  EXPECT_EQ(grid.text(), "random reads over 1G");
  const std::vector<Measurement> cells = measure_grid(spec, grid, 2);
  ASSERT_EQ(cells.size(), 4U);
  EXPECT_GT(cells[1].iops, cells[0].iops);  // deeper
  EXPECT_GT(cells[2].mb_s, cells[0].mb_s);  // larger
  const std::string text = grid_text(grid, cells);
  EXPECT_THAT(text, testing::StartsWith("\nBandwidth of random reads over 1G (MB/s)\n"
                                        "    size   depth 1    depth 8 \n      4K "));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3 * 5);
  const std::string csv = grid_csv("emmc51", grid, cells);
  EXPECT_THAT(csv, HasSubstr("\nemmc51,1073741824,131072,8,0,"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 4);
}

}  // namespace
}  // namespace kvreplay
