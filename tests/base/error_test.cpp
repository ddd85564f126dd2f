#include "base/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvreplay {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StrEq;

const std::vector<std::string> kNames = {"lru", "lfu", "fifo", "belady"};

TEST(ErrorTest, NamesFilePathFoundAndAllowedOnOneLine) {
  const UserError error({"a.json", "/cache/part"}, "found\ntext", "a number");
  EXPECT_THAT(error.what(), StrEq("a.json: /cache/part: found text; allowed: a number"));
}

TEST(ErrorTest, EmptyPartsLeaveNoTrace) {
  EXPECT_THAT(UserError({"", "/a"}, "found", "").what(), StrEq("/a: found"));
  EXPECT_THAT(UserError({"f", ""}, "found", "x").what(), StrEq("f: found; allowed: x"));
  EXPECT_THAT(UserError(SourceLocation{}, "found", "").what(), StrEq("found"));
}

TEST(ErrorTest, PlaceDescends) {
  const SourceLocation place = SourceLocation{"f", ""}.at("a").at("0");
  EXPECT_EQ(place.file, "f");
  EXPECT_EQ(place.within, "/a/0");
}

TEST(ErrorTest, NearestNameIsTheSmallestEdit) {
  EXPECT_EQ(nearest_name("lrru", kNames), "lru");
  EXPECT_EQ(nearest_name("belay", kNames), "belady");
  EXPECT_EQ(nearest_name("fifo", kNames), "fifo");
  EXPECT_EQ(nearest_name("something-else", kNames), "");
  EXPECT_EQ(nearest_name("lru", {}), "");
  const std::vector<std::string> devices{"ufs21", "ufs31", "ufs40"};
  EXPECT_EQ(nearest_name("ufs41", devices), "ufs40");
  const std::vector<std::string> sizes{"planes", "page_bytes", "read_unit_bytes"};
  EXPECT_EQ(nearest_name("page_kib", sizes), "page_bytes");
}

TEST(ErrorTest, NearestNameIsByMeaningToo) {
  const std::vector<std::string> names{"token_budget",    "budget_tokens", "buffer",
                                       "capacity_groups", "dram_kv_bytes", "stream.sink_tokens",
                                       "latency_ms"};
  EXPECT_EQ(nearest_name("budget", names), "budget_tokens");
  EXPECT_EQ(nearest_name("budgt", names), "budget_tokens");
  EXPECT_EQ(nearest_name("sinks", names), "stream.sink_tokens");
  EXPECT_EQ(nearest_name("sink_tokens", names), "stream.sink_tokens");
  EXPECT_EQ(nearest_name("memory", names), "dram_kv_bytes");
  EXPECT_EQ(nearest_name("memory_bytes", names), "dram_kv_bytes");
  EXPECT_EQ(nearest_name("latency", names), "latency_ms");
  // A slip of the finger stays one.
  EXPECT_EQ(nearest_name("bufer", names), "buffer");
}

TEST(ErrorTest, UnknownNameOffersTheNearest) {
  const std::string near = unknown_name({"f", "/p"}, "cache", "lruu", kNames).what();
  EXPECT_EQ(near,
            "f: /p: unknown cache 'lruu' (did you mean 'lru'?); allowed: lru, lfu, fifo, belady");
  const std::string far = unknown_name({"f", "/p"}, "cache", "something-else", kNames).what();
  EXPECT_THAT(far, Not(HasSubstr("did you mean")));
  EXPECT_THAT(unknown_name({}, "cache", "x", {}).what(), HasSubstr("allowed: none here"));
}

TEST(ErrorTest, Join) {
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(join(kNames, "|"), "lru|lfu|fifo|belady");
}

}  // namespace
}  // namespace kvreplay
