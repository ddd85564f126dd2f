#include "devices/served/real_time_device.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/build_info.hpp"
#include "base/config.hpp"
#include "base/random.hpp"

namespace kvreplay {
namespace {

using std::chrono::microseconds;

DeviceSpec emmc() {
  return DeviceSpec::load(source_folder() + "/configs/devices/emmc51.json");
}

struct Served {
  double seconds;
  ServiceReport report;
};

/// `threads` closed loops of random requests at once.
Served serve(RealTimeDevice& device, int threads, int requests, std::uint64_t bytes,
             double write_share) {
  const auto begin = RealTimeDevice::Clock::now();
  std::vector<std::thread> loops;
  for (int t = 0; t < threads; ++t) {
    loops.emplace_back([&, t] {
      Random random(Random::derive(3, static_cast<std::uint64_t>(t)));
      for (int i = 0; i < requests; ++i) {
        RealTimeDevice::Request request;
        device.start(request, {random.below(1 << 16) * 4096, bytes},
                     random.uniform() < write_share);
        device.finish(request);
      }
    });
  }
  for (std::thread& loop : loops) loop.join();
  const std::chrono::duration<double> elapsed = RealTimeDevice::Clock::now() - begin;
  return {elapsed.count(), device.report()};
}

// On a busy machine a reply may be late but never early, so each of these bounds holds under any
// load.
TEST(RealTimeDevice, NeverRepliesBeforeTheModelWould) {
  RealTimeDevice device(emmc(), microseconds(50));
  const Served served = serve(device, 1, 200, 4096, 0);
  // 4 KiB at depth 1: 107 + 62 + 65 us and the transfers.
  EXPECT_GT(served.report.read_mean_us, 234);
  EXPECT_LT(served.report.read_mean_us, 300);
  EXPECT_GE(served.seconds * 1e6, 200 * served.report.read_mean_us);
}

TEST(RealTimeDevice, CountsEveryRequestOfEveryThread) {
  for (const int spin_us : {0, 50}) {
    RealTimeDevice device(emmc(), microseconds(spin_us));
    const Served served = serve(device, 16, 40, 8192, 0.3);
    const ServiceReport& report = served.report;
    EXPECT_EQ(report.read_requests + report.write_requests, 640u);
    EXPECT_GT(report.read_requests, 0u);
    EXPECT_GT(report.write_requests, 0u);
    EXPECT_EQ(report.read_bytes, 8192 * report.read_requests);
    EXPECT_EQ(report.counters.read_commands, report.read_requests);
    EXPECT_EQ(report.counters.host_write_bytes, report.write_bytes);
    // The controller takes 62 us per command, so the device cannot have been faster.
    EXPECT_GE(served.seconds, 640 * 62e-6);
    EXPECT_LE(report.error_p50_us, report.error_p99_us);
    EXPECT_LE(report.error_p99_us, report.error_max_us);
    EXPECT_LE(report.error_mean_us, report.error_max_us);
  }
}

TEST(RealTimeDevice, RequestsQueueAsInTheModel) {
  const ConfigNode slow = ConfigNode::load(source_folder() + "/configs/devices/emmc51.json")
                              .with("read_us", "30000")
                              .with("reuse_page_register", "false");
  RealTimeDevice device(DeviceSpec::parse(slow), microseconds(50));
  const auto begin = RealTimeDevice::Clock::now();
  std::vector<RealTimeDevice::Request> requests(4);
  for (RealTimeDevice::Request& request : requests) device.start(request, {0, 4096}, false);
  for (RealTimeDevice::Request& request : requests) device.finish(request);
  // One die senses all four, one after the other.
  EXPECT_GE(RealTimeDevice::Clock::now() - begin, 4 * microseconds(30'000));
}

TEST(RealTimeDevice, SplitsWhatExceedsTheLargestTransfer) {
  RealTimeDevice device(emmc(), microseconds(50));
  RealTimeDevice::Request request;
  device.start(request, {512, 1 << 20}, false);
  device.finish(request);
  const ServiceReport report = device.report();
  EXPECT_EQ(report.read_requests, 1u);
  EXPECT_EQ(report.counters.read_commands, 2u);
  EXPECT_EQ(report.counters.host_read_bytes, 1u << 20);
}

TEST(RealTimeDevice, RoundsToLogicalBlocks) {
  RealTimeDevice device(emmc(), microseconds(50));
  RealTimeDevice::Request request;
  device.start(request, {100, 1000}, true);
  device.finish(request);
  const ServiceReport report = device.report();
  EXPECT_EQ(report.write_bytes, 1000u);
  EXPECT_EQ(report.counters.host_write_bytes, 1536u);
}

TEST(RealTimeDevice, AnEmptyRangeIsDoneAtOnce) {
  RealTimeDevice device(emmc(), microseconds(50));
  RealTimeDevice::Request request;
  device.start(request, {4096, 0}, false);
  device.finish(request);
  EXPECT_EQ(device.report().counters.read_commands, 0u);
  EXPECT_EQ(device.report().read_mean_us, 0);
}

}  // namespace
}  // namespace kvreplay
