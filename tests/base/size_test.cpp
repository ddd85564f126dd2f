#include "base/size.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

namespace kvreplay {
namespace {

TEST(Size, Units) {
  EXPECT_EQ(parse_size("512B"), 512);
  EXPECT_EQ(parse_size("4kB"), 4000);
  EXPECT_EQ(parse_size("4KB"), 4000);
  EXPECT_EQ(parse_size("4KiB"), 4096);
  EXPECT_EQ(parse_size("1.5 MiB"), 3 << 19);
  EXPECT_EQ(parse_size("2GB"), 2'000'000'000);
  EXPECT_EQ(parse_size("1TiB"), std::int64_t{1} << 40);
}

TEST(Size, EverySuffix) {
  for (const auto& [unit, bytes] : {std::pair<const char*, std::int64_t>{"", 1},
                                    {"B", 1},
                                    {"kB", 1'000},
                                    {"KB", 1'000},
                                    {"MB", 1'000'000},
                                    {"GB", 1'000'000'000},
                                    {"TB", 1'000'000'000'000},
                                    {"KiB", std::int64_t{1} << 10},
                                    {"MiB", std::int64_t{1} << 20},
                                    {"GiB", std::int64_t{1} << 30},
                                    {"TiB", std::int64_t{1} << 40},
                                    {"K", std::int64_t{1} << 10},
                                    {"M", std::int64_t{1} << 20},
                                    {"G", std::int64_t{1} << 30},
                                    {"T", std::int64_t{1} << 40},
                                    {"k", std::int64_t{1} << 10},
                                    {"m", std::int64_t{1} << 20},
                                    {"g", std::int64_t{1} << 30},
                                    {"t", std::int64_t{1} << 40}}) {
    const std::string name = unit;
    EXPECT_EQ(parse_size("3" + name), 3 * bytes) << name;
    EXPECT_EQ(parse_size("0" + name), 0) << name;
    const bool has_unit = !name.empty();
    if (has_unit) {
      EXPECT_EQ(parse_size("3 " + name), 3 * bytes) << name;
    }
    EXPECT_EQ(parse_size_with_unit("3" + name).has_value(), has_unit) << name;
  }
}

TEST(Size, FractionsOfWholeBytes) {
  EXPECT_EQ(parse_size("1.5GiB"), std::int64_t{3} << 29);
  EXPECT_EQ(parse_size("0.1TB"), 100'000'000'000);
  EXPECT_EQ(parse_size("1.1GB"), 1'100'000'000);
  EXPECT_EQ(parse_size("2.0B"), 2);
  EXPECT_EQ(parse_size("1.0001kB"), std::nullopt);
  // A single letter needs a whole number, and a plain number must be whole bytes.
  EXPECT_EQ(parse_size("1.5K"), std::nullopt);
  EXPECT_EQ(parse_size("1.5"), std::nullopt);
}

TEST(Size, UpTo2To62) {
  EXPECT_EQ(parse_size("4611686018427387904"), std::int64_t{1} << 62);
  EXPECT_EQ(parse_size("4194304TiB"), std::int64_t{1} << 62);
  for (const char* text : {"4611686018427387905", "4194305TiB", "16777216T", "99999999999999999999",
                           "99999999999999999999B", "5000000.5TiB"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

TEST(Size, WhatIsNone) {
  for (const char* text :
       {"",     "KiB",  "64 KB s", "64kib", "64gb", "-1KiB", "+1KiB", "0.3B",  "1e30TiB", "1e3B",
        "nanB", "infB", "4  KiB",  "4 ",    " 4",   "4KK",   "4X",    ".5MiB", "0x10",    "lru"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_size_with_unit("64"), std::nullopt);
}

TEST(Size, Counts) {
  EXPECT_EQ(parse_count("512"), 512);
  EXPECT_EQ(parse_count("16K"), 16384);
  EXPECT_EQ(parse_count("2m"), 2 << 20);
  for (const char* text : {"", "K", "16KiB", "16KB", "16B", "1.5K", "-1", "x"}) {
    EXPECT_EQ(parse_count(text), std::nullopt) << text;
  }
}

TEST(Size, DecimalTextHasThreeDigits) {
  for (const auto& [bytes, text] : {std::pair{0.0, "0 B"},
                                    {512, "512 B"},
                                    {999.4, "999 B"},
                                    {999.6, "1.00 kB"},
                                    {1000, "1.00 kB"},
                                    {27385856, "27.4 MB"},
                                    {420372480, "420 MB"},
                                    {999499999, "999 MB"},
                                    {999500000, "1.00 GB"},
                                    {99950000, "100 MB"},
                                    {9995000, "10.0 MB"},
                                    {3.5e12, "3.50 TB"}}) {
    EXPECT_EQ(decimal_size_text(bytes), text);
  }
}

TEST(Size, Text) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(std::int64_t{5} << 30), "5.0 GiB");
}

TEST(Size, ShortTextIsReadBack) {
  for (const auto& [bytes, text] : {std::pair<std::uint64_t, const char*>{512, "512"},
                                    {24 << 10, "24K"},
                                    {1 << 20, "1M"},
                                    {(1 << 20) + 512, "1049088"},
                                    {std::uint64_t{64} << 30, "64G"}}) {
    EXPECT_EQ(short_size_text(bytes), text);
    EXPECT_EQ(parse_size(text), static_cast<std::int64_t>(bytes));
  }
}

}  // namespace
}  // namespace kvreplay
