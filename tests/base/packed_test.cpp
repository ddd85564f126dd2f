#include "base/packed.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/random.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(Packed, ReadsBackWhatWasWritten) {
  std::vector<std::int64_t> integers{0, 1, -1, 63, 64, -64, -65, 8191, 8192, kMax, kMin, kMax};
  Random random(7);
  for (int bits = 0; bits < 64; ++bits) {
    integers.push_back(static_cast<std::int64_t>(random.next() >> bits));
  }
  const std::vector<double> reals{0.0, -0.0, 1.5, std::nan(""), 5e-324, 1e308};
  PackedWriter write;
  for (const std::int64_t integer : integers) write(integer);
  write(integers);
  write(reals);
  write(std::string("two\nlines\0", 10));
  write(true);
  write(~std::uint64_t{0});
  write(std::vector<double>{});

  PackedReader read(write.bytes());
  for (const std::int64_t integer : integers) {
    std::int64_t back = 0;
    read(back);
    EXPECT_EQ(back, integer);
  }
  std::vector<std::int64_t> integers_back;
  read(integers_back);
  EXPECT_EQ(integers_back, integers);
  std::vector<double> reals_back;
  read(reals_back);
  ASSERT_EQ(reals_back.size(), reals.size());
  for (std::size_t i = 0; i < reals.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(reals_back[i]), std::bit_cast<std::uint64_t>(reals[i]));
  }
  std::string text;
  read(text);
  EXPECT_EQ(text, std::string("two\nlines\0", 10));
  bool flag = false;
  read(flag);
  EXPECT_TRUE(flag);
  std::uint64_t word = 0;
  read(word);
  EXPECT_EQ(word, ~std::uint64_t{0});
  EXPECT_FALSE(read.at_end());
  read(reals_back);
  EXPECT_TRUE(reals_back.empty());
  EXPECT_TRUE(read.at_end());
}

TEST(Packed, SmallNumbersTakeAByteEach) {
  PackedWriter write;
  write(std::vector<std::int64_t>{1000, 1001, 1002, 1003});
  EXPECT_EQ(write.bytes().size(), 1U + 2 + 3);
}

TEST(Packed, NeverReadsBeyondTheEnd) {
  PackedWriter write;
  write(std::vector<std::int64_t>{1, 2, 300});
  write(2.5);
  const std::string& whole = write.bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    PackedReader read(std::string_view(whole).substr(0, size));
    std::vector<std::int64_t> integers;
    double real = 0;
    EXPECT_THROW(
        {
          read(integers);
          read(real);
        },
        std::logic_error)
        << size;
  }
  PackedReader read("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  std::int64_t integer = 0;
  EXPECT_THROW(read(integer), std::logic_error);
}

}  // namespace
}  // namespace kvreplay
