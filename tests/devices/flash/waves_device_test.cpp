#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/engine/simulation.hpp"
#include "base/random.hpp"
#include "devices/calibration/calibrate.hpp"
#include "devices/calibration/measure.hpp"
#include "devices/device_config.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

DeviceSpec waves(const std::string& more = R"(, "queue_depth": 8)") {
  return DeviceSpec::parse(ConfigNode::parse(
      R"({"title": "test", "part": "waves", "wave_us": 30, "request_us": 5,
          "transfer_mb_s": 1000, "write_wave_us": 40)" +
          more + "}",
      "waves.json"));
}

class Ends final : public EventHandler {
 public:
  explicit Ends(Simulation& simulation) : simulation_(simulation) {}
  void on_event(std::uint64_t) override { at.push_back(simulation_.now()); }
  std::vector<SimTime> at;

 private:
  Simulation& simulation_;
};

/// When commands of one block each, submitted together, end.
std::vector<SimTime> ends_of(const DeviceSpec& spec, int reads, int writes = 0) {
  Simulation simulation;
  const auto device = spec.make(simulation);
  Ends ends(simulation);
  for (int i = 0; i < reads + writes; ++i) device->submit({0, 4096, i >= reads}, ends, 0);
  simulation.run();
  EXPECT_EQ(device->counters().host_read_bytes, 4096u * static_cast<unsigned>(reads));
  EXPECT_EQ(device->counters().host_write_bytes, 4096u * static_cast<unsigned>(writes));
  return ends.at;
}

TEST(WavesDevice, ServesWhatWaitsTogether) {
  EXPECT_EQ(ends_of(waves(), 3), (std::vector<SimTime>{39096, 48192, 57288}));
  EXPECT_EQ(ends_of(waves(R"(, "queue_depth": 8, "completion": "together")"), 3),
            (std::vector<SimTime>{57288, 57288, 57288}));
  EXPECT_EQ(ends_of(waves(), 0, 1), (std::vector<SimTime>{40000 + 5000 + 4096}));
  EXPECT_EQ(ends_of(waves(R"(, "queue_depth": 1)"), 2).back(), 2 * 39096);
}

TEST(WavesDevice, AWaveTakesWhatArrivesBeforeTheHostIsAwake) {
  Simulation simulation;
  const auto device = waves().make(simulation);
  Ends ends(simulation);
  struct Later final : EventHandler {
    Later(Device& to, Ends& end) : device(to), ends(end) {}
    void on_event(std::uint64_t write) override { device.submit({0, 4096, write != 0}, ends, 0); }
    Device& device;
    Ends& ends;
  } later(*device, ends);
  simulation.schedule(0, later, 0);
  simulation.schedule(29'999, later, 1);  // a wave with a write takes 40 us before it moves
  simulation.schedule(30'001, later, 0);  // too late, for the wave that begins at 58,192
  simulation.run();
  EXPECT_EQ(ends.at, (std::vector<SimTime>{49096, 58192, 58192 + 39096}));
}

TEST(WavesDevice, AClosedLoopTakesTheWaveAndEachOfItsRequests) {
  for (const std::uint32_t depth : {1U, 4U, 8U}) {
    const Measurement measured =
        measure(waves(), {.bytes = 4096, .depth = depth, .requests = 4000, .range_bytes = 1 << 30});
    const double us = 30 + depth * (5 + 4.096);
    EXPECT_NEAR(measured.mean_us, us, 0.02 * us) << depth;
    EXPECT_NEAR(measured.iops, 1e6 * depth / us, 0.02 * 1e6 * depth / us) << depth;
  }
}

TEST(WavesDevice, AWaveHasNoMoreCommandsThanItsRingTakes) {
  // A ring of 256 takes 42 commands of 16 KiB, three of 256 KiB, and one of 512 KiB or more.
  const DeviceSpec spec = waves(R"(, "queue_depth": 64, "max_transfer_bytes": 1048576,
                                     "ring_entries": 256)");
  for (const auto& [bytes, together] :
       {std::pair<std::uint64_t, double>{16384, 42}, {262144, 3}, {524288, 1}, {1048576, 1}}) {
    for (const std::uint32_t depth : {1U, 2U, 64U}) {
      const Measurement measured =
          measure(spec, {.bytes = bytes, .depth = depth, .requests = 4000, .range_bytes = 1 << 30});
      const double us =
          30 / std::min<double>(depth, together) + 5 + static_cast<double>(bytes) / 1000;
      EXPECT_NEAR(measured.iops, 1e6 / us, 0.02 * 1e6 / us) << bytes << " bytes, depth " << depth;
    }
  }
  EXPECT_EQ(ends_of(waves(R"(, "queue_depth": 8, "ring_entries": 6)"), 3),
            (std::vector<SimTime>{39096, 48192, 48192 + 39096}))
      << "two of one block have six";
  EXPECT_EQ(ends_of(waves(R"(, "queue_depth": 8, "ring_entries": 5)"), 3),
            (std::vector<SimTime>{39096, 2 * 39096, 3 * 39096}));
}

TEST(WavesDevice, LimitsLetBurstsPass) {
  const auto rate = [](const std::string& limit, std::uint64_t bytes, std::uint64_t requests) {
    return measure(waves(limit),
                   {.bytes = bytes, .depth = 8, .requests = requests, .range_bytes = 1 << 30});
  };
  const std::string few = R"(, "queue_depth": 8, "limit_iops": 1000, "limit_burst_s": 0.1)";
  EXPECT_NEAR(rate(few, 4096, 20000).iops, 1000, 10);
  EXPECT_GT(rate(few, 4096, 90).iops, 50000) << "within the burst";
  const Workload after_long_use{
      .bytes = 4096, .depth = 8, .requests = 90, .range_bytes = 1 << 30, .burst_used_up = true};
  EXPECT_NEAR(measure(waves(few), after_long_use).iops, 1000, 30);
  EXPECT_NEAR(rate(R"(, "queue_depth": 8, "limit_mb_s": 10, "limit_burst_s": 0)", 65536, 2000).mb_s,
              10, 0.1);
}

TEST(WavesDevice, WritesShareTheLimitsUnlessTheyHaveTheirOwn) {
  const auto mixed = [](const std::string& limits, double write_share) {
    return measure(waves(R"(, "queue_depth": 64, "limit_iops": 1000)" + limits),
                   {.bytes = 4096,
                    .depth = 8,
                    .requests = 8000,
                    .write_share = write_share,
                    .range_bytes = 1 << 30,
                    .burst_used_up = true});
  };
  for (const double share : {0.0, 0.5, 1.0}) EXPECT_NEAR(mixed("", share).iops, 1000, 10) << share;
  const std::string apart = R"(, "write_limit_iops": 500)";
  EXPECT_NEAR(mixed(apart, 0).iops, 1000, 10);
  EXPECT_NEAR(mixed(apart, 1).iops, 500, 5);
  EXPECT_NEAR(mixed(apart, 0.5).iops, 1000, 30) << "as many reads as writes";
  EXPECT_NEAR(mixed(apart, 0.1).iops, 1000 / 0.9, 40) << "the limit of reads";
  EXPECT_NEAR(mixed(R"(, "write_limit_mb_s": 4.096)", 1).iops, 1000, 10);
  EXPECT_GT(mixed(R"(, "write_limit_iops": 1e9)", 1).iops, 50000);
}

TEST(WavesDevice, AReadDoesNotWaitForTheTokensOfWrites) {
  const Measurement mixed =
      measure(waves(R"(, "queue_depth": 64, "write_limit_iops": 500)"), {.bytes = 4096,
                                                                         .depth = 8,
                                                                         .requests = 8000,
                                                                         .write_share = 0.5,
                                                                         .range_bytes = 1 << 30,
                                                                         .burst_used_up = true});
  EXPECT_NEAR(mixed.iops, 1000, 30);
  EXPECT_LT(mixed.read_mean_us, 200);
  EXPECT_NEAR(mixed.write_mean_us, 2 * 8 * 1000, 500) << "Little's law";
}

TEST(WavesDevice, RefusesWhatBreaksItsLimits) {
  Simulation simulation;
  const auto device = waves().make(simulation);
  Ends ends(simulation);
  EXPECT_THROW(device->submit({100, 4096, false}, ends, 0), std::logic_error);
  EXPECT_THROW(device->submit({0, 0, false}, ends, 0), std::logic_error);
  EXPECT_NE(user_error_of([&] {
              (void)waves(R"(, "queue_depth": 8, "write_limit_iops": 1e-10)").make(simulation);
            }).find("write_limit_iops"),
            std::string::npos);
}

/// What sizes and depths give on the device that is read, and on the one that is written.
std::vector<MeasuredPoint> measured_points(const DeviceSpec& read, const DeviceSpec& written) {
  std::vector<MeasuredPoint> points;
  for (const double write_share : {0.0, 1.0}) {
    for (const std::uint64_t bytes : {4096, 16384, 65536, 262144}) {
      for (const std::uint32_t depth : {1U, 2U, 4U, 8U}) {
        const Measurement m =
            measure(write_share == 0 ? read : written, {.bytes = bytes,
                                                        .depth = depth,
                                                        .requests = 4000,
                                                        .write_share = write_share,
                                                        .range_bytes = 1 << 30,
                                                        .burst_used_up = true});
        points.push_back({.bytes = bytes,
                          .depth = depth,
                          .range_bytes = 1 << 30,
                          .iops = m.iops,
                          .mean_us = m.mean_us,
                          .write_share = write_share,
                          .requests = 4000});
      }
    }
  }
  return points;
}

TEST(CalibrateWaves, RecoversWhatMadeThePoints) {
  const DeviceSpec truth =
      waves(R"(, "queue_depth": 8, "write_request_us": 20, "write_transfer_mb_s": 3000)");
  const std::vector<MeasuredPoint> points = measured_points(truth, truth);
  const ConfigNode base = ConfigFolder::standard().load(
      "devices", ConfigFolder::standard().file("devices", "ufs40", {}));
  const Calibration waves_alone = calibrate(base, points, {.part = FittedPart::kWaves});
  EXPECT_NEAR(waves_alone.fitted.at("wave_us"), 30, 1);
  EXPECT_NEAR(waves_alone.fitted.at("request_us"), 5, 0.3);
  EXPECT_NEAR(waves_alone.fitted.at("transfer_mb_s"), 1000, 20);
  EXPECT_NEAR(waves_alone.fitted.at("write_wave_us"), 40, 2);
  EXPECT_NEAR(waves_alone.fitted.at("write_request_us"), 20, 1);
  for (const FittedPoint& point : waves_alone.points) EXPECT_LT(std::abs(point.iops_error()), 0.03);
  EXPECT_EQ(DeviceSpec::parse(waves_alone.config).device.name(), "waves");

  const Calibration best = calibrate(base, points, {.part = FittedPart::kBest});
  EXPECT_EQ(DeviceSpec::parse(best.config).device.name(), "waves");
  EXPECT_NE(best.compared.find("waves"), std::string::npos);
  EXPECT_NE(best.compared.find("root mean square, reads twice"), std::string::npos);
  const std::string preset = preset_json(best, base, "mine", "mine", "", "points");
  EXPECT_EQ(DeviceSpec::parse(ConfigNode::parse(preset, "mine.json")).device.name(), "waves");
}

TEST(CalibrateWaves, FindsTheRing) {
  const ConfigNode base = ConfigFolder::standard().load(
      "devices", ConfigFolder::standard().file("devices", "ufs40", {}));
  for (const int ring : {0, 128, 256}) {
    const DeviceSpec truth =
        waves(R"(, "queue_depth": 8, "write_transfer_mb_s": 3000, "ring_entries": )" +
              std::to_string(ring));
    const Calibration found =
        calibrate(base, measured_points(truth, truth), {.part = FittedPart::kWaves});
    EXPECT_EQ(found.fitted.contains("ring_entries"), ring > 0);
    EXPECT_NEAR(found.fitted.at("wave_us"), 30, 1);
    EXPECT_NEAR(found.fitted.at("write_transfer_mb_s"), 3000, 60);
    for (const FittedPoint& point : found.points) EXPECT_LT(std::abs(point.iops_error()), 0.03);
    const std::string preset = preset_json(found, base, "mine", "mine", "", "points");
    const DeviceSpec parsed = DeviceSpec::parse(ConfigNode::parse(preset, "mine.json"));
    EXPECT_EQ(parsed.device.arguments().integer("ring_entries"), ring);
  }
}

/// As if each had been measured with an error of the given size.
std::vector<MeasuredPoint> noisy(std::vector<MeasuredPoint> points, double error,
                                 std::uint64_t seed) {
  Random random(seed);
  for (MeasuredPoint& point : points) {
    const double factor = std::exp(error * std::sqrt(12) * (random.uniform() - 0.5));
    point.iops *= factor;
    point.mean_us /= factor;
  }
  return points;
}

/// Those that were fitted.
std::map<std::string, double> limits_of(const Calibration& found) {
  std::map<std::string, double> limits;
  for (const auto& [name, value] : found.fitted) {
    if (name.find("limit_") != std::string::npos) limits[name] = value;
  }
  return limits;
}

TEST(CalibrateWaves, FindsTheLimits) {
  const ConfigNode base = ConfigFolder::standard().load(
      "devices", ConfigFolder::standard().file("devices", "ufs40", {}));
  struct Case {
    const char* limits;
    std::map<std::string, double> expected;
  };
  const std::vector<Case> cases{
      {R"(, "limit_iops": 30000, "limit_mb_s": 400)", {{"limit_iops", 30000}, {"limit_mb_s", 400}}},
      {R"(, "limit_iops": 20000, "write_limit_iops": 1e9)",
       {{"limit_iops", 20000}, {"write_limit_iops", 1e9}}},
      {R"(, "write_limit_mb_s": 300)", {{"write_limit_mb_s", 300}}}};
  constexpr double kError = 0.03;
  for (const Case& one : cases) {
    SCOPED_TRACE(one.limits);
    const DeviceSpec truth = waves(std::string(R"(, "queue_depth": 8)") + one.limits);
    const Calibration found = calibrate(base, noisy(measured_points(truth, truth), kError, 1),
                                        {.part = FittedPart::kWaves});
    std::map<std::string, double> limits = limits_of(found);
    EXPECT_EQ(limits.size(), one.expected.size());
    const std::string preset = preset_json(found, base, "mine", "mine", "", "points");
    const DeviceSpec parsed = DeviceSpec::parse(ConfigNode::parse(preset, "mine.json"));
    for (const auto& [name, value] : one.expected) {
      EXPECT_NEAR(limits[name], value, (0.01 + kError) * value) << name;
      EXPECT_DOUBLE_EQ(parsed.device.arguments().real(name), limits[name]);
    }
    EXPECT_DOUBLE_EQ(parsed.device.arguments().real("limit_burst_s"), 0.1) << "not fitted";
    for (const FittedPoint& point : found.points) {
      EXPECT_LT(std::abs(point.iops_error()), 0.04 + 3 * kError);
    }
  }
}

/// A limit that binds at every point hides the device from mean latencies, but not from medians.
TEST(CalibrateWaves, MediansTellTheDeviceFromALimitThatBindsEverywhere) {
  const ConfigNode base = ConfigFolder::standard().load(
      "devices", ConfigFolder::standard().file("devices", "ufs40", {}));
  const DeviceSpec truth = waves(R"(, "queue_depth": 8)");
  constexpr double kLimitIops = 1500;
  std::vector<MeasuredPoint> points = measured_points(truth, truth);
  for (MeasuredPoint& point : points) {
    ASSERT_FALSE(point.shows_bucket());
    ASSERT_GT(point.iops, 2 * kLimitIops);
    point.median_us = point.mean_us;
    point.iops = kLimitIops;
    point.mean_us = 1e6 * point.depth / kLimitIops;
    ASSERT_TRUE(point.shows_bucket());
  }
  const Calibration found = calibrate(base, points, {.part = FittedPart::kBest});
  EXPECT_EQ(DeviceSpec::parse(found.config).device.name(), "waves");
  EXPECT_NE(found.compared.find("bucket of tokens"), std::string::npos);
  EXPECT_NEAR(found.fitted.at("wave_us"), 30, 1);
  EXPECT_NEAR(found.fitted.at("request_us"), 5, 0.3);
  EXPECT_NEAR(found.fitted.at("transfer_mb_s"), 1000, 20);
  EXPECT_NEAR(found.fitted.at("limit_iops"), kLimitIops, 15);
}

TEST(CalibrateWaves, NoiseMakesNoLimit) {
  const ConfigNode base = ConfigFolder::standard().load(
      "devices", ConfigFolder::standard().file("devices", "ufs40", {}));
  const std::vector<MeasuredPoint> exact = measured_points(waves(), waves());
  for (const double error : {0.0, 0.05, 0.15}) {
    const Calibration found = calibrate(base, noisy(exact, error, 1), {.part = FittedPart::kWaves});
    EXPECT_TRUE(limits_of(found).empty()) << error;
  }
}

TEST(CalibrateWaves, AllUnseenPointsDecideAndNotTheMiddleOne) {
  // Reads of a flash device, and writes of a waves device: reads count twice.
  const ConfigNode base = ConfigFolder::standard().load(
      "devices", ConfigFolder::standard().file("devices", "ufs40", {}));
  const DeviceSpec flash = DeviceSpec::parse(base);
  const std::vector<MeasuredPoint> points = measured_points(flash, waves());
  const auto error = [&](FittedPart part) {
    double squares[2] = {0, 0};
    double counts[2] = {0, 0};
    for (const FittedPoint& point : calibrate(base, points, {.part = part}).points) {
      if (point.use == PointUse::kFitted) continue;
      const int kind = point.measured.write_share == 0 ? 0 : 1;
      squares[kind] += std::pow(std::log(point.iops / point.measured.iops), 2);
      ++counts[kind];
    }
    return std::sqrt((2 * squares[0] / counts[0] + squares[1] / counts[1]) / 3);
  };
  const bool waves_are_nearer = error(FittedPart::kWaves) < error(FittedPart::kFlash);
  const Calibration best = calibrate(base, points, {.part = FittedPart::kBest});
  EXPECT_EQ(DeviceSpec::parse(best.config).device.name(), waves_are_nearer ? "waves" : "flash");
}

}  // namespace
}  // namespace kvreplay
