#include "base/table.hpp"

#include <gtest/gtest.h>

namespace kvreplay {
namespace {

constexpr auto kLeft = Table::Align::kLeft;
constexpr auto kRight = Table::Align::kRight;

TEST(Table, AlignsToTheWidestCell) {
  Table table({{"system", kLeft}, {"ms"}, {"device", kLeft}});
  table.add_row({"quest", "12.5", "ufs40"});
  table.add_row({"in_memory", "1.0", "emmc51"});
  EXPECT_EQ(table.text(),
            "system       ms  device\n"
            "quest      12.5  ufs40\n"
            "in_memory   1.0  emmc51\n");
  EXPECT_EQ(table.text(false),
            "quest      12.5  ufs40\n"
            "in_memory   1.0  emmc51\n");
}

TEST(Table, FixedWidthsDoNotGrow) {
  Table table({{"size", kRight, 6}, {"name", kLeft, 4}, {"value", kRight, 5}}, " ");
  table.add_row({"4K", "a", "1.0"});
  table.add_row({"4K", "abcdef", "1.0"});  // moves what follows
  EXPECT_EQ(table.text(),
            "  size name value\n"
            "    4K a      1.0\n"
            "    4K abcdef   1.0\n");
}

TEST(Table, RowsMayEndEarly) {
  Table table({{"batch", kLeft, 5}, {"context", kLeft, 7}, {"G", kLeft, 2}, {"C", kLeft}});
  table.add_row({"1", "1024", "4", "24"});
  table.add_row({"2", "1024", "does not fit"});
  table.add_row({"3"});
  EXPECT_EQ(table.text(),
            "batch  context  G   C\n"
            "1      1024     4   24\n"
            "2      1024     does not fit\n"
            "3\n");
}

TEST(Table, EmptyCellsKeepTheirPlace) {
  Table table({{"a", kRight, 3}, {"b", kRight, 3}}, " ");
  table.add_row({"", ""});
  EXPECT_EQ(table.text(false), "       \n");
}

TEST(Table, Markdown) {
  Table table({{"system"}, {"what it is"}});
  table.add_row({"[quest](quest.md)", "a|b"});
  table.add_row({"none", ""});
  EXPECT_EQ(table.markdown(),
            "| system | what it is |\n|---|---|\n| [quest](quest.md) | a\\|b |\n| none |  |\n");
}

TEST(Table, NamesOfSeveralLinesEndInTheSameOne) {
  Table table({{"system", kLeft}, {"tokens\nper_s"}});
  table.add_row({"quest", "12.5"});
  EXPECT_EQ(table.text(), "        tokens\nsystem   per_s\nquest     12.5\n");
  EXPECT_EQ(table.text(false), "quest     12.5\n");
}

TEST(Table, Latex) {
  Table table({{"system", kLeft}, {"hit_rate"}});
  table.add_row({"50 % & {more} $x$ #1 a\\b ~^", "1"});
  EXPECT_EQ(table.latex(),
            "\\begin{tabular}{lr}\n\\toprule\nsystem & hit\\_rate \\\\\n\\midrule\n"
            "50 \\% \\& \\{more\\} \\$x\\$ \\#1 a\\textbackslash{}b \\~{}\\^{} & 1 \\\\\n"
            "\\bottomrule\n\\end{tabular}\n");
}

}  // namespace
}  // namespace kvreplay
