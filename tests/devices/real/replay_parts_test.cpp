#include "devices/real/replay_parts.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

/// The parts of a replay whose requests complete out of order add up to the final record.
TEST(ReplayParts, AddUpToTheMeasurement) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    ReplayParts parts;
    ScheduleMeasurement measured;
    measured.requests.resize(200);
    ScheduleMeasurement received;
    std::size_t requested = 0;
    EXPECT_FALSE(parts.take());
    for (std::int64_t step = 1; requested < measured.requests.size(); ++step) {
      for (std::uint64_t i = random.below(10); i > 0 && requested < measured.requests.size(); --i) {
        measured.requests[requested++].requested_ns = step;
      }
      for (std::size_t i = 0; i < requested; ++i) {
        if (!measured.requests[i].completed() && random.below(3) == 0) {
          measured.requests[i].completed_ns = 2 * step;
        }
      }
      measured.steps.push_back({.latency_ns = step, .read_requests = 3});
      parts.note(measured);
      if (random.below(4) != 0) continue;
      add_part(*parts.take(), "test", received);
      EXPECT_FALSE(parts.take());
      EXPECT_EQ(received.steps, measured.steps);
      ASSERT_EQ(received.requests.size(), requested);
      for (std::size_t i = 0; i < requested; ++i)
        EXPECT_EQ(received.requests[i], measured.requests[i]);
    }
  }
}

TEST(ReplayParts, AreNeverLongerThanAFrame) {
  ReplayParts parts;
  ScheduleMeasurement measured;
  measured.steps.resize(25'000);
  measured.requests.assign(250'000, {1'000'000'000'000'000, 1'000'000'000'000'001});
  parts.note(measured);
  ScheduleMeasurement received;
  while (const auto part = parts.take()) {
    EXPECT_LT(to_json(part->measured).size(), (std::size_t{8} << 20) - 100);
    add_part(*part, "test", received);
  }
  EXPECT_EQ(received.steps, measured.steps);
  EXPECT_EQ(received.requests, measured.requests);
}

TEST(ReplayParts, OnesThatDoNotFollowAreRefused) {
  ReplayParts parts;
  ScheduleMeasurement measured;
  measured.steps.resize(1);
  measured.requests = {{1, 2}};
  parts.note(measured);
  ReplayPart part = *parts.take();
  part.first_request = 5;
  ScheduleMeasurement received;
  EXPECT_THROW(add_part(part, "board", received), UserError);
  EXPECT_TRUE(received.steps.empty());
}

}  // namespace
}  // namespace kvreplay
