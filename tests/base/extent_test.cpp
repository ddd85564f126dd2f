#include "base/extent.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/random.hpp"

namespace kvreplay {
namespace {

std::set<std::uint64_t> bytes_of(const std::vector<Extent>& extents) {
  std::set<std::uint64_t> bytes;
  for (const Extent& extent : extents) {
    for (std::uint64_t byte = extent.offset; byte < extent.end(); ++byte) bytes.insert(byte);
  }
  return bytes;
}

TEST(Extent, CoalesceKeepsTheBytesAndLeavesGapsBetweenExtents) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    std::vector<Extent> extents(random.below(12));
    for (Extent& extent : extents) extent = {random.below(100), random.below(15)};
    const std::set<std::uint64_t> before = bytes_of(extents);
    coalesce(extents);
    EXPECT_EQ(bytes_of(extents), before);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      EXPECT_GT(extents[i].bytes, 0u);
      if (i > 0) {
        EXPECT_LT(extents[i - 1].end(), extents[i].offset);
      }
    }
  }
}

TEST(Extent, CoalesceMergesWhatTouches) {
  std::vector<Extent> extents{{10, 5}, {0, 10}, {20, 0}, {30, 10}, {32, 2}};
  coalesce(extents);
  EXPECT_EQ(extents, (std::vector<Extent>{{0, 15}, {30, 10}}));
}

}  // namespace
}  // namespace kvreplay
