#include "sim/time/power_limit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sim/time/time_plan.hpp"
#include "tests/devices/flash/flash_spec.hpp"
#include "tests/sim/sim_specs.hpp"

namespace kvreplay {
namespace {

constexpr SimTime kSecond = 1'000'000'000;

/// 8 W computing, 1 W waiting; 4 W for any time, at half the rate; 20 s.
PlatformSpec limited_platform() {
  PlatformSpec platform = tiny_platform();
  platform.compute_power_w = 8;
  platform.waiting_power_w = 1;
  platform.throttled_rate = 0.5;
  platform.sustained_power_w = 4;
  platform.power_time_constant_ns = 20 * kSecond;
  return platform;
}

TEST(PowerLimit, BeginsWhenTheMeanHasReachedTheSustainedPower) {
  PowerLimit limit(limited_platform());
  // The mean is 8 (1 - e^(-t / 20 s)), and 4 at 20 ln 2 = 13.86 s.
  const double full_s = 20 * std::log(2);
  const SimTime ns = limit.compute(0, 60 * kSecond);
  EXPECT_NEAR(seconds(ns), full_s + (60 - full_s) / 0.5, 0.05);
  EXPECT_NEAR(seconds(limit.throttled_ns()), (60 - full_s) / 0.5, 0.05);
  EXPECT_NEAR(limit.mean_w(), 4, 0.02);
}

TEST(PowerLimit, ManyKernelsAreAsOne) {
  PowerLimit one(limited_platform());
  PowerLimit many(limited_platform());
  SimTime end = 0;
  for (int kernel = 0; kernel < 6000; ++kernel) end += many.compute(end, kSecond / 100);
  // A kernel is rounded up to a nanosecond.
  EXPECT_NEAR(static_cast<double>(end), static_cast<double>(one.compute(0, 60 * kSecond)), 1e7);
}

TEST(PowerLimit, WaitingAndRestingCoolIt) {
  PowerLimit limit(limited_platform());
  const SimTime hot = limit.compute(0, 60 * kSecond);
  // For 10 s at 1 W: 1 + 3 e^(-1/2) = 2.82 W. Then 8 - 5.18 e^(-t / 20 s) W, which is 4 at 5.17 s.
  SimTime now = hot + 10 * kSecond;
  const double full_s = 20 * std::log((8 - (1 + 3 * std::exp(-0.5))) / 4);
  const SimTime throttled = limit.throttled_ns();
  now += limit.compute(now, 20 * kSecond);
  EXPECT_NEAR(seconds(limit.throttled_ns() - throttled), (20 - full_s) / 0.5, 0.1);
  limit.rest(now + 40 * kSecond);
  EXPECT_NEAR(limit.mean_w(), 4 * std::exp(-2), 0.02);
}

TEST(PowerLimit, WithoutOneNothingTakesLonger) {
  PowerLimit limit(tiny_platform());
  EXPECT_FALSE(limit.enabled());
  EXPECT_EQ(limit.compute(5, 3600 * kSecond), 3600 * kSecond);
  EXPECT_EQ(limit.throttled_ns(), 0);
}

/// 4 layers that attend to what is in memory: a token is compute alone.
IoPlan computing_plan() {
  IoPlan plan{"test", tiny_model().kv_kinds(), 1000, 4, 0, {}};
  LayerPlan& layer = plan.layers.emplace_back();
  for (int step = 0; step < 4; ++step) add_step(layer, {}, {}, 10);
  layer.dram.entries_bytes = 64000;
  layer.dram.cache_bytes = 64000;
  return plan;
}

Timing long_run(const PlatformSpec& platform, const DeviceSpec& device = test::flash()) {
  TimeOptions options;
  options.prefill_chunk_tokens = 512;
  options.sustained_ns = 120 * kSecond;
  return time_plan(computing_plan(), tiny_model(), platform, device,
                   PartConfig<Pipeline>::by_name("serial"), options);
}

TEST(Sustained, TokensPerSecondAreThoseOfTheStepsUntilTheLimit) {
  const Timing free = long_run(tiny_platform());
  ASSERT_EQ(free.sustained.size(), 60u);
  const double per_s = 1 / seconds(free.steps.front().latency_ns);
  double tokens = 0;
  for (const SustainedInterval& interval : free.sustained) tokens += interval.tokens;
  EXPECT_NEAR(tokens, (120 - seconds(free.prefill.ttft_ns)) * per_s, 1);
  EXPECT_NEAR(free.sustained.back().tokens, 2 * per_s, 1e-3 * per_s);
  EXPECT_EQ(free.sustained.back().throttled_ns, 0);
  EXPECT_TRUE(std::isnan(free.sustained.back().temperature_c));

  const Timing limited = long_run(limited_platform());
  EXPECT_NEAR(limited.sustained[2].tokens, 2 * per_s, 1e-3 * per_s);
  // 20 ln 2 s are in the seventh interval of 2 s.
  EXPECT_EQ(limited.sustained[5].throttled_ns, 0);
  EXPECT_GT(limited.sustained[7].throttled_ns, 0);
  EXPECT_NEAR(limited.sustained.back().tokens, per_s, 1e-3 * per_s);
  EXPECT_NEAR(limited.sustained.back().mean_power_w, 4, 0.02);
  EXPECT_NEAR(limited.sustained.back().compute_ns, 2e9, 2e6);
}

TEST(Sustained, ChangesNothingElse) {
  TimeOptions options;
  options.prefill_chunk_tokens = 512;
  const Timing without = time_plan(computing_plan(), tiny_model(), limited_platform(),
                                   test::flash(), PartConfig<Pipeline>::by_name("serial"), options);
  const Timing with = long_run(limited_platform());
  ASSERT_EQ(with.steps.size(), without.steps.size());
  for (std::size_t i = 0; i < with.steps.size(); ++i) {
    EXPECT_EQ(with.steps[i].latency_ns, without.steps[i].latency_ns);
  }
  EXPECT_EQ(with.prefill.ttft_ns, without.prefill.ttft_ns);
  EXPECT_EQ(with.energy.compute_nj, without.energy.compute_nj);
  EXPECT_TRUE(without.sustained.empty());
}

TEST(Sustained, APrefillOfALimitedPlatformTakesLessEnergyAndLonger) {
  // 10 s and more of computation at once.
  PlatformSpec slow = limited_platform();
  slow.flops_s /= 100;
  PlatformSpec unlimited = slow;
  unlimited.throttled_rate = 1;
  const auto prefill = [&](const PlatformSpec& platform) {
    TimeOptions options;
    options.prefill_chunk_tokens = 512;
    return time_plan(computing_plan(), tiny_model(), platform, test::flash(),
                     PartConfig<Pipeline>::by_name("serial"), options)
        .prefill;
  };
  const Prefill full = prefill(unlimited);
  const Prefill throttled = prefill(slow);
  ASSERT_GT(seconds(full.ttft_ns), 20 * std::log(2));
  const double full_s = 20 * std::log(2);
  EXPECT_NEAR(seconds(throttled.ttft_ns), full_s + (seconds(full.ttft_ns) - full_s) / 0.5, 0.1);
  EXPECT_NEAR(throttled.energy.compute_nj / 1e9,
              8 * full_s + 4 * (seconds(throttled.ttft_ns) - full_s), 1);
  EXPECT_DOUBLE_EQ(full.energy.compute_nj, 8 * static_cast<double>(full.ttft_ns));
}

}  // namespace
}  // namespace kvreplay
