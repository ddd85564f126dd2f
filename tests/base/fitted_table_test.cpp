#include "base/fitted_table.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace kvreplay {
namespace {

FittedColumn label(const char* name, std::vector<std::string> cells) {
  return {name, std::move(cells), true, true, 0};
}

FittedColumn metric(const char* name, std::vector<std::string> cells, int rank = 0) {
  return {name, std::move(cells), false, false, rank};
}

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(FittedTable, ConstantsStandAboveAndLongNamesAreBroken) {
  EXPECT_EQ(fitted_table({label("device", {"ufs40", "ufs40"}), label("system", {"quest", "h2o"}),
                          metric("tokens_per_s", {"10.44", "4.1"})},
                         100, "elsewhere"),
            "device: ufs40\n"
            "\n"
            "        tokens\n"
            "system   per_s\n"
            "quest    10.44\n"
            "h2o        4.1\n");
}

TEST(FittedTable, OneRowHasItsLabelsAbove) {
  EXPECT_EQ(fitted_table({label("device", {"ufs40"}), label("system", {"quest"}),
                          metric("ms", {"1.0"}), metric("mass", {"0.9"})},
                         100, "elsewhere"),
            "device: ufs40\n\nsystem   ms  mass\nquest   1.0   0.9\n");
  EXPECT_EQ(fitted_table({}, 100, "elsewhere"), "");
}

TEST(FittedTable, LeavesOutTheHighestRankAndOfTheseTheLast) {
  const std::vector<FittedColumn> columns{
      label("system", {"a", "b"}), metric("aaaa", {"1", "2"}, 1), metric("bbbb", {"1", "2"}, 3),
      metric("cccc", {"1", "2"}, 3), metric("dddd", {"1", "2"}, 1)};
  EXPECT_EQ(fitted_table(columns, 24, "f"),
            "system  aaaa  bbbb  dddd\na          1     1     1\nb          2     2     2\n\n"
            "Not shown (f): cccc\n");
  EXPECT_EQ(fitted_table(columns, 23, "f"),
            "system  aaaa  dddd\na          1     1\nb          2     2\n\n"
            "Not shown (f): bbbb,\n  cccc\n");
  EXPECT_EQ(fitted_table(columns, 0, "f").find("Not shown"), std::string::npos);
}

TEST(FittedTable, LabelsLoseTheirMiddleUnlessTwoBecomeOne) {
  const std::string a = "a_name_that_is_long_and_ends_in_one";
  const std::string b = "a_name_that_is_long_and_ends_in_two";
  const std::string text =
      fitted_table({label("system", {a, b}), metric("ms", {"1", "2"})}, 30, "f");
  EXPECT_EQ(longest_line(text), 30U) << text;
  EXPECT_NE(text.find(".."), std::string::npos);
  const std::string same_ends = "a_name_that_ix_long_and_ends_in_one";
  const std::string whole =
      fitted_table({label("system", {a, same_ends}), metric("ms", {"1", "2"})}, 22, "f");
  EXPECT_NE(whole.find(a), std::string::npos);
}

TEST(FittedTable, SweptKeysLoseTheirPathWhereTheRestIsTheirs) {
  const auto with = [](const char* other) {
    return fitted_table({label("system", {"a", "b"}), metric("system.cache.tokens", {"1", "2"}),
                         metric(other, {"1", "2"})},
                        100, "f");
  };
  EXPECT_EQ(with("ms").substr(0, with("ms").find('\n')), "system  tokens  ms");
  EXPECT_NE(with("system.selection.tokens").find("cache"), std::string::npos);
}

TEST(FittedTable, NoLineIsLongerThanTheWidth) {
  std::vector<FittedColumn> columns{
      label("trace", {std::string(90, 'x') + " " + std::string(60, 'y'),
                      std::string(90, 'x') + " " + std::string(60, 'y')}),
      label("system", {"one", "two"})};
  for (int i = 0; i < 30; ++i) {
    columns.push_back(metric("a_metric_with_a_name", {std::to_string(i), "12345678"}, i % 5));
  }
  EXPECT_LE(longest_line(fitted_table(columns, 100, "results.csv has them")), 100U);
}

TEST(Wrapped, BreaksAtSpaces) {
  EXPECT_EQ(wrapped("a b c", 3), "a b\n  c");
  EXPECT_EQ(wrapped("a bcdef g", 4), "a\n  bcdef\n  g");
  EXPECT_EQ(wrapped("a b c", 0), "a b c");
  EXPECT_EQ(wrapped("", 5), "");
}

}  // namespace
}  // namespace kvreplay
