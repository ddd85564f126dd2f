#include "base/number_text.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace kvreplay {
namespace {

TEST(NumberText, Fixed) {
  EXPECT_EQ(fixed_text(1.25, 1), "1.2");  // to even, as printf
  EXPECT_EQ(fixed_text(-0.04, 1), "-0.0");
  EXPECT_EQ(fixed_text(1e21, 0), "1000000000000000000000");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::quiet_NaN(), 2), "nan");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::max(), 3).size(), 309U + 4);
}

TEST(NumberText, ShortestReadsBack) {
  for (const double value : {0.1, 1.0 / 3, 1e300, -2.5, 0.0}) {
    EXPECT_EQ(std::stod(shortest_text(value)), value);
  }
  EXPECT_EQ(shortest_text(0.1), "0.1");
}

TEST(NumberText, ErrorPercent) {
  EXPECT_EQ(error_percent_text(1.0125), "+1.2%");
  EXPECT_EQ(error_percent_text(0.5), "-50.0%");
  EXPECT_EQ(error_percent_text(1), "+0.0%");
}

}  // namespace
}  // namespace kvreplay
