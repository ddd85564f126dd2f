// The ring alone: what the kernel does with requests that read nothing.

#include "devices/real/io_ring.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

namespace kvreplay {
namespace {

class IoRingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ring_.error() != 0) GTEST_SKIP() << "no io_uring here: errno " << -ring_.error();
  }
  void prepare(std::uint64_t user_data) {
    io_uring_sqe& request = ring_.prepare();
    request.opcode = IORING_OP_NOP;
    request.user_data = user_data;
  }
  std::vector<std::uint64_t> drained() {
    std::vector<std::uint64_t> found;
    ring_.drain([&](std::uint64_t user_data, std::int32_t result) {
      EXPECT_EQ(result, 0);
      found.push_back(user_data);
    });
    return found;
  }

  IoRing ring_{3, 0};
};

TEST_F(IoRingTest, EveryRequestCompletesOnceOverManyTurnsOfTheRing) {
  for (std::uint64_t turn = 0; turn < 100; ++turn) {
    for (std::uint64_t i = 0; i < 3; ++i) prepare(3 * turn + i);
    EXPECT_EQ(ring_.submit(3), 3);
    EXPECT_EQ(drained(), (std::vector<std::uint64_t>{3 * turn, 3 * turn + 1, 3 * turn + 2}));
  }
  EXPECT_TRUE(drained().empty());
}

TEST_F(IoRingTest, AWaitEndsWithItsTime) {
  EXPECT_LE(ring_.submit(1, 1'000'000), 0);  // 0 or -ETIME, by kernel
  prepare(7);
  EXPECT_EQ(ring_.submit(1, 60'000'000'000), 1);
  EXPECT_EQ(drained(), std::vector<std::uint64_t>{7});
}

TEST(IoRing, SaysWhyThereIsNone) {
  const IoRing ring(0, 0);
  EXPECT_LT(ring.error(), 0);
}

}  // namespace
}  // namespace kvreplay
