#include "base/size.hpp"

#include <gtest/gtest.h>

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

TEST(Size, WhatIsNone) {
  for (const char* text : {"", "KiB", "64", "64 KB s", "64kib", "-1KiB", "0.3B", "1e30TiB", "nanB",
                           "infB", "4  KiB", "lru"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

TEST(Size, Text) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(std::int64_t{5} << 30), "5.0 GiB");
}

}  // namespace
}  // namespace kvreplay
