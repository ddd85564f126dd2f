#include "base/utc_time.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace kvreplay {
namespace {

TEST(UtcTime, IsThatOfTheEnvironment) {
  ::setenv("SOURCE_DATE_EPOCH", "86399", 1);
  EXPECT_EQ(utc_now(), "1970-01-01T23:59:59Z");
  ::unsetenv("SOURCE_DATE_EPOCH");
  EXPECT_GT(utc_now(), "2024");
}

}  // namespace
}  // namespace kvreplay
