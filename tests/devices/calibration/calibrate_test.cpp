// Round trips: points that a known model gives are fitted from another model.

#include "devices/calibration/calibrate.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "base/build_info.hpp"
#include "devices/calibration/measure.hpp"
#include "tests/devices/flash/flash_spec.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using test::flash;
using test::flash_config;
using test::Overrides;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Synthetic: results of the model itself, at other random places than the fit uses.
std::vector<MeasuredPoint> synthetic(const DeviceSpec& truth,
                                     const std::vector<std::uint64_t>& sizes,
                                     const std::vector<std::uint32_t>& depths,
                                     double write_share = 0, std::uint64_t requests = 1500) {
  std::vector<MeasuredPoint> points;
  for (const std::uint64_t bytes : sizes) {
    for (const std::uint32_t depth : depths) {
      const Measurement m = measure(truth, {.bytes = bytes,
                                            .depth = depth,
                                            .requests = requests,
                                            .write_share = write_share,
                                            .seed = 99});
      points.push_back({bytes, depth, 0, m.iops, m.mean_us, write_share, m.requests, m.read_mean_us,
                        m.write_mean_us});
    }
  }
  return points;
}

std::vector<MeasuredPoint> together(std::vector<MeasuredPoint> points,
                                    const std::vector<MeasuredPoint>& others) {
  points.insert(points.end(), others.begin(), others.end());
  return points;
}

/// Enough points to fit anything.
std::vector<MeasuredPoint> few_points() {
  return synthetic(flash({{"read_us", "50"}}), {4 << 10, 32 << 10}, {1, 4, 8, 32});
}

void print(const Calibration& calibration) {
  for (const auto& [name, value] : calibration.fitted) {
    std::printf("%s %g  ", name.c_str(), value);
  }
  std::printf("(%llu models)\n", static_cast<unsigned long long>(calibration.evaluations));
}

TEST(Calibrate, RecoversAModelFromItsOwnMeasurements) {
  const DeviceSpec truth = flash({{"command_latency_us", "35"},
                                  {"command_overhead_us", "12"},
                                  {"read_us", "60"},
                                  {"channel_mb_s", "300"},
                                  {"link_mb_s", "900"}});
  const Calibration calibration =
      calibrate(flash_config({}),
                synthetic(truth, {4 << 10, 16 << 10, 64 << 10, 256 << 10}, {1, 2, 4, 8, 16, 32}),
                {.hold_out_every = 5, .threads = 2});
  print(calibration);

  int held_out = 0;
  for (const FittedPoint& point : calibration.points) {
    held_out += point.use == PointUse::kHeldOut ? 1 : 0;
    EXPECT_NEAR(point.iops_error(), 0, 0.03)
        << point.measured.bytes << " bytes, depth " << point.measured.depth;
    EXPECT_NEAR(point.latency_error(), 0, 0.03);
  }
  EXPECT_EQ(held_out, 4);
  const auto& fitted = calibration.fitted;
  EXPECT_NEAR(fitted.at("command_overhead_us"), 12, 0.03 * 12);
  EXPECT_NEAR(fitted.at("channels") * fitted.at("dies_per_channel"), 8, 0);
  EXPECT_NEAR(fitted.at("channels") * fitted.at("channel_mb_s"), 1200, 0.03 * 1200);
  EXPECT_NEAR(fitted.at("link_mb_s"), 900, 0.03 * 900);
  // On an idle device the two add up, and dies that hardly queue determine little of their own
  // part.
  EXPECT_NEAR(fitted.at("command_latency_us") + fitted.at("read_us"), 95, 0.02 * 95);
  // The fit is the same device also at sizes and depths that were never measured.
  const DeviceSpec spec = DeviceSpec::parse(calibration.config);
  for (const std::uint64_t bytes : {8u << 10, 24u << 10, 128u << 10}) {
    for (const std::uint32_t depth : {1u, 4u, 16u}) {
      const Workload workload{.bytes = bytes, .depth = depth, .requests = 1500};
      const double expected = measure(truth, workload).iops;
      EXPECT_NEAR(measure(spec, workload).iops, expected, 0.04 * expected)
          << bytes << " bytes, depth " << depth;
    }
  }
}

TEST(Calibrate, AStallDoesNotBendTheFit) {
  const DeviceSpec truth = flash({{"command_overhead_us", "12"}, {"link_mb_s", "900"}});
  std::vector<MeasuredPoint> points =
      synthetic(truth, {4 << 10, 16 << 10, 64 << 10, 256 << 10}, {1, 2, 4, 8, 16, 32});
  for (const std::size_t stalled : {12, 13}) {
    points[stalled].iops /= 6;
    points[stalled].mean_us *= 6;
  }
  const Calibration calibration =
      calibrate(flash_config({}), points, {.hold_out_every = 0, .threads = 2});
  print(calibration);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i == 12 || i == 13) continue;
    EXPECT_NEAR(calibration.points[i].iops_error(), 0, 0.06) << i;
  }
}

TEST(Calibrate, WhatTheWayTakesIsLeftOut) {
  const DeviceSpec truth = flash({{"command_overhead_us", "12"}, {"read_us", "60"}});
  std::vector<MeasuredPoint> points;
  for (const std::uint64_t bytes : {4 << 10, 64 << 10}) {
    for (const std::uint32_t depth : {1u, 2u, 8u, 32u}) {
      Workload workload{.bytes = bytes, .depth = depth, .requests = 1500, .seed = 99};
      workload.path_us = 100;
      const Measurement m = measure(truth, workload);
      points.push_back(
          {.bytes = bytes, .depth = depth, .iops = m.iops, .mean_us = m.mean_us, .path_us = 100});
    }
  }
  const Calibration calibration =
      calibrate(flash_config({}), points, {.hold_out_every = 0, .threads = 2});
  print(calibration);
  const DeviceSpec found = DeviceSpec::parse(calibration.config);
  for (const std::uint32_t depth : {1u, 4u, 32u}) {
    const Workload workload{.bytes = 4096, .depth = depth, .requests = 1500};
    EXPECT_NEAR(measure(found, workload).iops / measure(truth, workload).iops, 1, 0.04) << depth;
  }
}

TEST(Calibrate, ABurstDecidesTheOrderOfService) {
  const std::vector<MeasuredPoint> points = few_points();
  const auto order = [&](const Overrides& base, std::optional<double> mixing) {
    const Calibration calibration = calibrate(
        flash_config(base), points, {.hold_out_every = 0, .mixing = mixing, .threads = 2});
    EXPECT_EQ(calibration.from_burst.contains("service_order"),
              mixing.has_value() && mixing != 0.5);
    return DeviceSpec::parse(calibration.config).device.arguments().text("service_order");
  };
  EXPECT_EQ(order({}, std::nullopt), "arrival");
  EXPECT_EQ(order({{"service_order", "random"}}, std::nullopt), "random");
  EXPECT_EQ(order({{"service_order", "random"}}, 0.02), "arrival");
  EXPECT_EQ(order({}, 0.97), "random");
  EXPECT_EQ(order({}, 0.5), "arrival");
  EXPECT_EQ(order({{"service_order", "random"}}, 0.5), "random");
}

TEST(Calibrate, LeavesTheTruthAsItIsThoughItsMapIsOnlyHeldInPart) {
  const DeviceSpec truth = DeviceSpec::load(source_folder() + "/configs/devices/ufs40.json");
  std::vector<MeasuredPoint> points;
  constexpr std::uint64_t kRange = 1 << 30;  // 256 lines of a map of which the device holds 255
  for (const std::uint64_t bytes : {4u << 10, 16u << 10, 64u << 10, 256u << 10}) {
    for (const std::uint32_t depth : {1u, 4u, 16u, 32u}) {
      const Measurement m = measure(
          truth,
          {.bytes = bytes, .depth = depth, .requests = 3000, .range_bytes = kRange, .seed = 99});
      points.push_back({bytes, depth, kRange, m.iops, m.mean_us});
    }
  }
  const Calibration calibration =
      calibrate(ConfigNode::load(source_folder() + "/configs/devices/ufs40.json"), points,
                {.hold_out_every = 0, .threads = 2});
  print(calibration);
  const DeviceSpec fitted = DeviceSpec::parse(calibration.config);
  for (const FittedPoint& point : calibration.points) EXPECT_NEAR(point.iops_error(), 0, 0.02);
  for (const MeasuredPoint& point : points) {
    const Measurement m = measure(
        fitted,
        {.bytes = point.bytes, .depth = point.depth, .requests = 3000, .range_bytes = kRange});
    EXPECT_NEAR(m.iops, point.iops, 0.02 * point.iops)
        << point.bytes << " bytes, depth " << point.depth;
  }
}

TEST(Calibrate, WhatThePointsDoNotTellStaysTheBases) {
  // A few small requests on slow dies leave the link idle for nearly all of the time, and its share
  // is less than the scatter of the points.
  const ConfigNode base = flash_config({{"link_mb_s", "2000"}});
  std::vector<MeasuredPoint> points =
      synthetic(flash({{"read_us", "400"}}), {4 << 10, 8 << 10}, {1, 2, 3, 4});
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double scatter = i % 2 == 0 ? 1.08 : 1 / 1.08;
    points[i].iops *= scatter;
    points[i].mean_us /= scatter;
  }
  const Calibration calibration =
      calibrate(base, points, {.hold_out_every = 0, .block_bytes = 4096, .threads = 2});
  print(calibration);
  ASSERT_TRUE(calibration.undetermined.contains("link_mb_s"));
  EXPECT_EQ(calibration.undetermined.at("link_mb_s"), 2000);
  EXPECT_FALSE(calibration.fitted.contains("link_mb_s"));
  EXPECT_EQ(DeviceSpec::parse(calibration.config).device.arguments().integer("logical_block_bytes"),
            4096);
  for (const FittedPoint& point : calibration.points) EXPECT_NEAR(point.iops_error(), 0, 0.12);
}

TEST(Calibrate, APresetsBlockIsNoSmallerThanTheUnitOfWhatWasMeasured) {
  const auto block = [](const test::Overrides& base, const std::vector<std::uint64_t>& sizes,
                        std::uint64_t of_device) {
    const Calibration calibration =
        calibrate(flash_config(base), synthetic(flash(base), sizes, {1, 8, 32}),
                  {.hold_out_every = 0, .block_bytes = of_device, .threads = 2});
    return DeviceSpec::parse(calibration.config).device.arguments().integer("logical_block_bytes");
  };
  EXPECT_EQ(block({}, {4 << 10, 24 << 10}, 512), 4096);
  EXPECT_EQ(block({}, {1 << 10, 24 << 10}, 512), 1024);
  EXPECT_EQ(block({}, {64 << 10, 128 << 10}, 0), 4096);  // what live asks in, and no more
  EXPECT_EQ(block({}, {4 << 10, 24 << 10}, 16384), 16384);
}

TEST(Calibrate, FindsTheParallelismThatDecides) {
  // Slow dies: their number alone limits the rate of small reads.
  const test::Overrides slow{{"read_us", "400"}, {"channels", "2"}, {"dies_per_channel", "2"}};
  const Calibration calibration =
      calibrate(flash_config({{"read_us", "400"}, {"channels", "8"}, {"dies_per_channel", "2"}}),
                synthetic(flash(slow), {4 << 10, 16 << 10, 64 << 10}, {1, 8, 32}),
                {.hold_out_every = 5, .threads = 2});
  print(calibration);
  for (const FittedPoint& point : calibration.points) EXPECT_NEAR(point.iops_error(), 0, 0.06);
  const auto& fitted = calibration.fitted;
  EXPECT_NEAR(fitted.at("channels") * fitted.at("dies_per_channel") / fitted.at("read_us"),
              4 / 400.0, 0.1 * 4 / 400);
}

TEST(Calibrate, ThePresetIsTheSameOnAnyThreadsLoadsAndSaysWhereEveryNumberIsFrom) {
  const ConfigNode base = flash_config({});
  const auto fit = [&](int threads) {
    return calibrate(base, few_points(), {.hold_out_every = 4, .threads = threads});
  };
  const Calibration calibration = fit(1);
  const std::string text = preset_json(calibration, base, "mine", "title", "notes", "m.json");
  EXPECT_EQ(text, preset_json(fit(3), base, "mine", "title", "notes", "m.json"));

  const DeviceSpec spec = DeviceSpec::parse(ConfigNode::parse(text, "mine.json"));
  EXPECT_EQ(spec.name, "mine");
  for (const auto& [name, argument] : spec.device.arguments().all()) {
    if (argument.is_default) continue;
    EXPECT_THAT(argument.source, calibration.fitted.contains(name)
                                     ? HasSubstr("calibrated from m.json")
                                     : HasSubstr("not fitted; of test"))
        << name;
  }
  const Measurement m = measure(spec, {.bytes = 4096, .depth = 1, .requests = 600});
  EXPECT_NEAR(m.iops, calibration.points.front().iops, 0.01 * m.iops);

  // k divides the number of depths: counted along rows, one depth alone would be held out.
  std::set<std::uint64_t> sizes;
  std::set<std::uint32_t> depths;
  for (const FittedPoint& point : calibration.points) {
    if (point.use != PointUse::kHeldOut) continue;
    sizes.insert(point.measured.bytes);
    depths.insert(point.measured.depth);
  }
  EXPECT_EQ(sizes.size(), 2u);
  EXPECT_EQ(depths.size(), 2u);
}

const std::vector<std::uint64_t> kSizes{4 << 10, 16 << 10, 64 << 10, 256 << 10};
const std::vector<std::uint32_t> kDepths{1, 4, 16, 32};
/// The controller limits small writes, the dies large ones; 8 dies of 32 KiB in 1 ms: 262 MB/s.
const test::Overrides kSlowWrites{{"write_latency_us", "90"},
                                  {"write_overhead_us", "25"},
                                  {"write_link_mb_s", "1500"},
                                  {"program_us", "1000"},
                                  {"write_buffer_bytes", "2097152"}};

TEST(Calibrate, RecoversWrites) {
  const DeviceSpec truth = flash(kSlowWrites);
  const std::vector<MeasuredPoint> reads = synthetic(truth, kSizes, kDepths);
  const std::vector<MeasuredPoint> mixes = synthetic(truth, kSizes, kDepths, 0.3);
  const std::vector<MeasuredPoint> writes = synthetic(truth, kSizes, kDepths, 1);
  const Calibration calibration =
      calibrate(flash_config({}), together(together(reads, mixes), writes), {.threads = 2});
  print(calibration);
  const auto& fitted = calibration.fitted;
  EXPECT_NEAR(fitted.at("write_latency_us"), 90, 0.05 * 90);
  EXPECT_NEAR(fitted.at("write_overhead_us"), 25, 0.03 * 25);
  EXPECT_NEAR(fitted.at("write_link_mb_s"), 1500, 0.05 * 1500);
  EXPECT_NEAR(fitted.at("write_buffer_bytes"), 2097152, 0.1 * 2097152);
  const double dies = fitted.at("channels") * fitted.at("dies_per_channel");
  EXPECT_NEAR(fitted.at("program_us") / dies, 1000 / 8.0, 0.03 * 1000 / 8);

  std::map<PointUse, int> mixed;
  std::map<PointUse, int> written;
  for (const FittedPoint& point : calibration.points) {
    const double share = point.measured.write_share;
    if (share == 1) ++written[point.use];
    if (share > 0 && share < 1) ++mixed[point.use];
    EXPECT_NEAR(point.iops_error(), 0, share > 0 && share < 1 ? 0.1 : 0.05)
        << share << ": " << point.measured.bytes << " bytes, depth " << point.measured.depth;
  }
  EXPECT_EQ(written[PointUse::kHeldOut], 3);
  EXPECT_EQ(written[PointUse::kFitted], 13);
  EXPECT_EQ(mixed[PointUse::kPredicted], 16);
  // The fit is the same device also at sizes and depths that were never measured.
  const DeviceSpec spec = DeviceSpec::parse(calibration.config);
  for (const std::uint64_t bytes : {8u << 10, 24u << 10, 128u << 10}) {
    for (const std::uint32_t depth : {1u, 8u, 24u}) {
      const Workload workload{.bytes = bytes, .depth = depth, .requests = 3000, .write_share = 1};
      const double expected = measure(truth, workload).iops;
      EXPECT_NEAR(measure(spec, workload).iops, expected, 0.04 * expected)
          << bytes << " bytes, depth " << depth;
    }
  }
}

TEST(Calibrate, JudgesWritesByTheStateInWhichTheyWereMeasured) {
  // Only the second measurement has too many writes for the buffer and for the booster.
  const test::Overrides boosted{{"booster_bytes", "33554432"},
                                {"booster_program_us", "200"},
                                {"program_us", "1600"},
                                {"write_buffer_bytes", "1048576"}};
  const std::vector<std::uint64_t> sizes{16 << 10, 64 << 10};
  for (const std::uint64_t requests : {100u, 3000u}) {
    std::vector<FittedPoint> points;
    for (const MeasuredPoint& point : synthetic(flash(boosted), sizes, kDepths, 1, requests)) {
      points.push_back({point});
    }
    run_model(flash_config(boosted), false, points, 2);
    for (const FittedPoint& point : points) {
      EXPECT_NEAR(point.iops_error(), 0, 0.05)
          << requests << " of " << point.measured.bytes << " bytes, depth " << point.measured.depth;
    }
  }
}

TEST(Calibrate, WhatWritesDoNotTellStaysTheBases) {
  // All of them find room in the buffer, which is never full, so the dies do not show.
  const ConfigNode base = flash_config({});
  const std::vector<MeasuredPoint> points = together(
      few_points(),
      synthetic(flash({{"write_latency_us", "60"}}), {4 << 10, 8 << 10}, {1, 2, 4}, 1, 60));
  const Calibration calibration = calibrate(base, points, {.hold_out_every = 0, .threads = 2});
  print(calibration);
  // The two add up where no write waits for the controller.
  EXPECT_NEAR(
      calibration.fitted.at("write_latency_us") + calibration.fitted.at("write_overhead_us"), 62,
      1);
  EXPECT_EQ(calibration.undetermined.at("program_us"), 400);
  EXPECT_EQ(calibration.undetermined.at("write_buffer_bytes"), 1048576);
  const ConfigNode preset =
      ConfigNode::parse(preset_json(calibration, base, "mine", "t", "n", "m.json"), "mine.json");
  EXPECT_EQ(preset.at("write_latency_us").argument().source,
            "calibrated from the random writes of m.json");
  EXPECT_THAT(preset.at("program_us").argument().source,
              HasSubstr("not determined by the random writes of m.json; of test"));
  EXPECT_EQ(preset.at("read_us").argument().source, "calibrated from m.json");

  // Mixes determine nothing, and writes determine nothing about reads.
  const std::vector<MeasuredPoint> mixes = synthetic(flash(), {4 << 10}, {1, 8}, 0.5);
  const Calibration mixed =
      calibrate(base, together(points, mixes), {.hold_out_every = 0, .threads = 1});
  EXPECT_EQ(mixed.points.back().use, PointUse::kPredicted);
  EXPECT_EQ(preset_json(mixed, base, "", "", "", ""),
            preset_json(calibration, base, "", "", "", ""));
  const Calibration read =
      calibrate(base, together(few_points(), mixes), {.hold_out_every = 0, .threads = 1});
  EXPECT_TRUE(read.decided_by_writes.empty());
  for (const auto& [name, value] : read.fitted) EXPECT_EQ(calibration.fitted.at(name), value);
  EXPECT_EQ(
      preset_json(read, base, "", "", "", ""),
      preset_json(calibrate(base, few_points(), {.hold_out_every = 0}), base, "", "", "", ""));
}

TEST(Calibrate, WritesAloneAreFittedToTheReadsOfTheBase) {
  const Calibration calibration = calibrate(
      flash_config({}), synthetic(flash(kSlowWrites), kSizes, kDepths, 1), {.threads = 2});
  print(calibration);
  for (const FittedPoint& point : calibration.points) EXPECT_NEAR(point.iops_error(), 0, 0.05);
  EXPECT_FALSE(calibration.fitted.contains("read_us"));
  EXPECT_NEAR(calibration.fitted.at("program_us"), 1000, 30);
}

TEST(Calibrate, FewWritesArePredicted) {
  std::vector<MeasuredPoint> points =
      together(few_points(), synthetic(flash({{"read_us", "50"}}), {4 << 10}, {1, 8}, 1));
  const Calibration calibration = calibrate(flash_config({}), points, {.threads = 2});
  EXPECT_EQ(calibration.points.back().use, PointUse::kPredicted);
  EXPECT_GT(calibration.points.back().iops, 0);
  EXPECT_TRUE(calibration.decided_by_writes.empty());
}

TEST(Calibrate, RefusesBlocksThatTheBaseCannotHave) {
  const std::vector<MeasuredPoint> points = few_points();
  const auto error_of = [&](const Overrides& base, std::uint64_t block) {
    return user_error_of([&] {
      (void)calibrate(flash_config(base), points,
                      {.points = {"m.json", "/points"}, .block_bytes = block, .threads = 2});
    });
  };
  for (const std::uint64_t block : {1000u, 32768u, 65536u, 1u << 26}) {
    EXPECT_EQ(error_of({}, block),
              "m.json: /target/offset_alignment_bytes: found " + std::to_string(block) +
                  "; allowed: a power of two, at most 65536, that divides page_bytes = 16384 and "
                  "max_transfer_bytes = 1048576 of test");
  }
  EXPECT_THAT(error_of({{"max_transfer_bytes", "12288"}}, 8192), HasSubstr("found 8192"));
  // 2048 divides 18432.
  const Calibration calibration =
      calibrate(flash_config({{"page_bytes", "18432"}, {"read_unit_bytes", "2048"}}), points,
                {.block_bytes = 2048, .threads = 2});
  EXPECT_EQ(calibration.fitted.at("logical_block_bytes"), 2048);
}

TEST(Calibrate, FindsNothingThatAParameterCannotBe) {
  // Values of a device that is nearly dead, which no parameter explains.
  std::vector<MeasuredPoint> points;
  for (const double write_share : {0.0, 1.0}) {
    for (const std::uint32_t depth : {1u, 2u, 4u, 8u, 16u, 32u}) {
      points.push_back({4096, depth, 0, 1e-6 * depth, 1e12, write_share, 100});
    }
  }
  const ConfigNode base = flash_config({});
  const Calibration calibration = calibrate(base, points, {.hold_out_every = 0, .threads = 2});
  print(calibration);
  const DeviceSpec spec = DeviceSpec::parse(
      ConfigNode::parse(preset_json(calibration, base, "mine", "t", "n", "m.json"), "mine.json"));
  for (const Parameter& parameter : spec.device.part().parameters) {
    if (!calibration.fitted.contains(parameter.name)) continue;
    EXPECT_GE(calibration.fitted.at(parameter.name), parameter.minimum) << parameter.name;
    EXPECT_LE(calibration.fitted.at(parameter.name), parameter.maximum) << parameter.name;
  }
}

TEST(Calibrate, APresetIsOfNamesThatAreNoUtf8) {
  const ConfigNode base = flash_config({});
  const std::string text = preset_json({.config = base}, base, "\xff", "of \xfe", "n", "\xff.json");
  EXPECT_EQ(DeviceSpec::parse(ConfigNode::parse(text, "mine.json")).name, "\xef\xbf\xbd");
}

TEST(Calibrate, RefusesTooFewPoints) {
  std::vector<MeasuredPoint> points;
  for (const std::uint32_t depth : {1u, 2u, 4u, 8u}) points.push_back({4096, depth, 0, 1e4, 100});
  EXPECT_THAT(user_error_of([&] { (void)calibrate(flash_config({}), points, {}); }),
              AllOf(HasSubstr("4 points to fit"), HasSubstr("at least 5")));
  EXPECT_EQ(user_error_of([&] {
              (void)calibrate(flash_config({}), points, {.points = {"fio.json", "/jobs"}});
            }),
            "fio.json: /jobs: 4 points to fit; allowed: at least 5");
  EXPECT_EQ(user_error_of([] {
              (void)calibrate(flash_config({}), few_points(),
                              {.hold_out_every = 1, .points = {"m.json", "/points"}});
            }),
            "--hold-out: found 1, which leaves 0 of 8 points to fit; allowed: at least 5; 0 holds "
            "none out");
  std::vector<MeasuredPoint> writes;
  for (const std::uint32_t depth : {1u, 2u, 4u}) {
    writes.push_back({4096, depth, 0, 1e4, 100, 1, 1000});
  }
  EXPECT_THAT(user_error_of([&] { (void)calibrate(flash_config({}), writes, {}); }),
              AllOf(HasSubstr("3 points to fit"), HasSubstr("at least 5")));
  // The same point again tells a fit nothing new.
  const std::vector<MeasuredPoint> same(8, {4096, 1, 0, 1e4, 100});
  EXPECT_THAT(user_error_of([&] { (void)calibrate(flash_config({}), same, {}); }),
              HasSubstr("1 points to fit"));
}

}  // namespace
}  // namespace kvreplay
