#include "sim/replay/stage_store.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvreplay {
namespace {

TEST(NoStore, KeepsAndFindsNothing) {
  StageStore& store = StageStore::none();
  store.put("place", "key", "output");
  store.put_file("decide", "key",
                 [](const std::string&) { FAIL() << "there is nowhere to write"; });
  EXPECT_EQ(store.find("place", "key"), std::nullopt);
  EXPECT_EQ(store.read("place", "key"), std::nullopt);
  EXPECT_EQ(store.find("decide", "key"), std::nullopt);
  EXPECT_EQ(store.problem(), "") << "to keep nothing is what it is for";
}

TEST(NoStore, LocksNobodyOut) {
  const std::vector<std::string> keys{"key"};
  const auto one = StageStore::none().lock(keys);
  const auto another = StageStore::none().lock(keys);
  EXPECT_NE(one, nullptr);
  EXPECT_NE(another, nullptr);
}

}  // namespace
}  // namespace kvreplay
