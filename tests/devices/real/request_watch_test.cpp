#include "devices/real/request_watch.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/random.hpp"

namespace kvreplay {
namespace {

TEST(RequestWatch, TellsOfARequestOnlyOnceItHasBeenSeenForTheLimit) {
  RequestWatch watch(2);
  EXPECT_FALSE(watch.unanswered(0, 100));
  watch.notify_start(1, {4096, 512, true});
  EXPECT_FALSE(watch.unanswered(1000, 100)) << "seen for the first time";
  EXPECT_FALSE(watch.unanswered(1099, 100));
  const auto unanswered = watch.unanswered(1100, 100);
  ASSERT_TRUE(unanswered);
  EXPECT_EQ(unanswered->for_ns, 100);
  EXPECT_EQ(unanswered->command.offset, 4096u);
  EXPECT_EQ(unanswered->command.bytes, 512u);
  EXPECT_TRUE(unanswered->command.write);
  watch.notify_end(1);
  EXPECT_FALSE(watch.unanswered(5000, 100));
}

TEST(RequestWatch, ANewRequestOfTheSlotHasItsOwnTime) {
  RequestWatch watch(1);
  watch.notify_start(0, {0, 512, false});
  EXPECT_FALSE(watch.unanswered(0, 100));
  watch.notify_end(0);
  watch.notify_start(0, {512, 512, false});  // not seen while the slot was idle
  EXPECT_FALSE(watch.unanswered(100, 100));
  EXPECT_FALSE(watch.unanswered(199, 100));
  const auto unanswered = watch.unanswered(200, 100);
  ASSERT_TRUE(unanswered);
  EXPECT_EQ(unanswered->command.offset, 512u);
}

/// Compared with a plain list of the outstanding requests and the look that first saw each.
TEST(RequestWatch, AnyOrderOfBeginsEndsAndLooks) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    constexpr std::uint32_t kDepth = 5;
    constexpr std::int64_t kLimit = 10;
    RequestWatch watch(kDepth);
    std::map<std::uint32_t, std::uint64_t> outstanding;  // slot, offset
    std::map<std::uint64_t, std::int64_t> first_seen;    // offset, time
    std::uint64_t offset = 0;
    for (std::int64_t now = 0; now < 1000; ++now) {
      const auto slot = static_cast<std::uint32_t>(random.below(kDepth));
      if (outstanding.contains(slot)) {
        if (random.below(3) == 0) {
          watch.notify_end(slot);
          outstanding.erase(slot);
        }
      } else {
        watch.notify_start(slot, {++offset, 1, false});
        outstanding[slot] = offset;
      }
      if (random.below(2) == 0) continue;
      const auto unanswered = watch.unanswered(now, kLimit);
      bool any = false;
      bool told = false;
      for (const auto& [at, request] : outstanding) {
        const std::int64_t since = first_seen.emplace(request, now).first->second;
        any |= now - since >= kLimit;
        told |= unanswered && unanswered->command.offset == request &&
                unanswered->for_ns == now - since;
      }
      ASSERT_EQ(unanswered.has_value(), any) << now;
      ASSERT_EQ(told, any) << now;
      if (!any) continue;
      // Only then has every slot been looked at.
      for (std::uint32_t at = 0; at < kDepth; ++at) {
        if (outstanding.contains(at)) watch.notify_end(at);
      }
      outstanding.clear();
      EXPECT_FALSE(watch.unanswered(now, kLimit));
    }
  }
}

}  // namespace
}  // namespace kvreplay
