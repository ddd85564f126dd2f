#include "devices/commands.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <vector>

#include "base/random.hpp"

namespace kvreplay {
namespace {

/// The blocks that hold the bytes, one byte at a time.
std::set<std::uint64_t> blocks_of(const std::vector<Extent>& extents, std::uint64_t block_bytes) {
  std::set<std::uint64_t> blocks;
  for (const Extent& extent : extents) {
    for (std::uint64_t byte = extent.offset; byte < extent.end(); ++byte) {
      blocks.insert(byte / block_bytes);
    }
  }
  return blocks;
}

TEST(Commands, CoverExactlyTheBlocksOfTheExtentsInTheFewestCommands) {
  constexpr std::uint32_t kBlock = 16;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const auto blocks_a_transfer = static_cast<std::uint32_t>(1 + random.below(6));
    const DeviceLimits limits{kBlock, kBlock * blocks_a_transfer, 4};
    std::vector<Extent> extents(random.below(10));
    for (Extent& extent : extents) extent = {random.below(1000), random.below(120)};
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    const bool write = seed % 2 == 1;
    std::vector<IoCommand> commands;
    to_commands(extents, write, limits, commands);

    std::vector<std::uint64_t> covered;
    for (const IoCommand& command : commands) {
      EXPECT_EQ(command.write, write);
      EXPECT_EQ(command.offset % kBlock, 0u);
      EXPECT_EQ(command.bytes % kBlock, 0u);
      EXPECT_GT(command.bytes, 0u);
      EXPECT_LE(command.bytes, limits.max_transfer_bytes);
      for (std::uint64_t at = command.offset; at < command.offset + command.bytes; at += kBlock) {
        covered.push_back(at / kBlock);
      }
    }
    const std::set<std::uint64_t> blocks = blocks_of(extents, kBlock);
    EXPECT_EQ(covered, std::vector<std::uint64_t>(blocks.begin(), blocks.end()))
        << "seed " << seed << ": each block once, ascending";

    std::size_t fewest = 0;
    std::uint64_t run = 0;  // blocks in the run so far
    for (const std::uint64_t block : blocks) {
      run = blocks.contains(block - 1) && block > 0 ? run + 1 : 1;
      if ((run - 1) % blocks_a_transfer == 0) ++fewest;
    }
    EXPECT_EQ(commands.size(), fewest);
  }
}

TEST(Commands, AreAppended) {
  std::vector<IoCommand> commands{{0, 4096, true}};
  const std::vector<Extent> extents{{5000, 1}};
  to_commands(extents, false, {4096, 8192, 1}, commands);
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_TRUE(commands[0].write);
  EXPECT_EQ(commands[1].offset, 4096u);
  EXPECT_EQ(commands[1].bytes, 4096u);
}

TEST(Commands, UnsortedExtentsAreABug) {
  std::vector<IoCommand> commands;
  const std::vector<Extent> extents{{8192, 1}, {0, 1}};
  EXPECT_THROW(to_commands(extents, false, {}, commands), std::logic_error);
}

TEST(Commands, WithoutMergingEachExtentIsReadByItself) {
  // The first two touch, the next two share a block, the last is larger than a transfer.
  const std::vector<Extent> extents{{0, 512}, {512, 512}, {1100, 100}, {1300, 100}, {2048, 2048}};
  std::vector<IoCommand> commands;
  to_commands(extents, false, {512, 1024, 1}, commands, false);
  std::vector<Extent> ranges;
  for (const IoCommand& command : commands) ranges.push_back({command.offset, command.bytes});
  EXPECT_EQ(ranges,
            (std::vector<Extent>{
                {0, 512}, {512, 512}, {1024, 512}, {1024, 512}, {2048, 1024}, {3072, 1024}}));
}

}  // namespace
}  // namespace kvreplay
