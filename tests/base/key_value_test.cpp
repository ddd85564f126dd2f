#include "base/key_value.hpp"

#include <gtest/gtest.h>

namespace kvreplay {
namespace {

TEST(KeyValue, SplitsAtTheFirstEqualsSign) {
  const auto given = split_key_value("system.cache.part=lru");
  ASSERT_TRUE(given);
  EXPECT_EQ(given->key, "system.cache.part");
  EXPECT_EQ(given->value, "lru");
  EXPECT_EQ(split_key_value("a=b=c")->value, "b=c");
  EXPECT_EQ(split_key_value("a=")->value, "");
}

TEST(KeyValue, NeedsAKey) {
  for (const char* text : {"", "a", "=", "=b"}) EXPECT_FALSE(split_key_value(text)) << text;
}

}  // namespace
}  // namespace kvreplay
