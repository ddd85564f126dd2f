// The presets: their sources, their closed forms, and what papers report about the devices. The
// tables of measurements are in comparison_test.cpp.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/build_info.hpp"
#include "devices/calibration/measure.hpp"
#include "tests/devices/flash/flash_spec.hpp"

namespace kvreplay {
namespace {

using test::expect_close;
using test::preset;

constexpr std::uint64_t kKiB = 1024;

Measurement reads(const DeviceSpec& spec, std::uint64_t bytes, std::uint32_t depth) {
  const std::uint64_t requests = bytes >= 1024 * kKiB ? 200 : 4000;
  const Measurement m = measure(spec, {.bytes = bytes, .depth = depth, .requests = requests});
  std::printf("%-12s %8llu B depth %3u: %8.1f MB/s %8.1f MiB/s %9.0f IOPS, mean %8.1f us\n",
              spec.name.c_str(), static_cast<unsigned long long>(bytes), depth, m.mb_s,
              m.mb_s / 1.048576, m.iops, m.mean_us);
  return m;
}
std::vector<DeviceSpec> all_presets() {
  std::set<std::string> files;
  const std::string folder = source_folder() + "/configs/devices";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() == ".json") files.insert(file.path().string());
  }
  std::vector<DeviceSpec> specs;
  for (const std::string& file : files) {
    specs.push_back(DeviceSpec::load(file));
    EXPECT_EQ(specs.back().name, std::filesystem::path(file).stem().string());
  }
  EXPECT_GE(specs.size(), 9u);
  return specs;
}

TEST(Presets, AllLoadAndGiveASourceForEveryNumber) {
  // A mechanism that is off needs no parameters; one that is on must declare all of them.
  const std::vector<std::pair<std::string, std::string>> mechanisms{
      {"map_cache_entries", "map_"},    {"booster_bytes", "booster_"},
      {"suspend_programs", "suspend_"}, {"retry_percent", "retry_"},
      {"gc_capacity_bytes", "gc_"},     {"thermal_rate_percent", "thermal_"}};
  for (const DeviceSpec& spec : all_presets()) {
    EXPECT_FALSE(spec.title.empty());
    const auto& arguments = spec.device.arguments().all();
    for (const Parameter& parameter : spec.device.part().parameters) {
      const Argument& argument = arguments.find(parameter.name)->second;
      bool optional = parameter.default_value.has_value() && parameter.name != "planes" &&
                      parameter.name != "program_pages";
      for (const auto& [on, prefix] : mechanisms) {
        if (parameter.name.starts_with(prefix) && !arguments.find(on)->second.is_default) {
          optional = false;
        }
      }
      EXPECT_TRUE(optional || !argument.is_default) << spec.name << " " << parameter.name;
      EXPECT_TRUE(argument.is_default || !argument.source.empty())
          << spec.name << " " << parameter.name;
    }
    Simulation simulation;
    EXPECT_NE(spec.make(simulation), nullptr);
  }
}

/// The parameters of a preset, in microseconds and bytes per microsecond (= MB/s).
struct PresetModel {
  explicit PresetModel(const DeviceSpec& spec) : arguments(spec.device.arguments()) {}
  [[nodiscard]] double integer(const char* name) const {
    return static_cast<double>(arguments.integer(name));
  }
  [[nodiscard]] double real(const char* name) const { return arguments.real(name); }
  /// What remains of a rate at the starting temperature.
  [[nodiscard]] double rate(const char* name) const {
    const bool hot = real("thermal_start_c") >= real("thermal_throttle_c");
    return real(name) * (hot ? real("thermal_rate_percent") / 100 : 1);
  }
  [[nodiscard]] double on_channel(double bytes) const {
    const double unit = integer("read_unit_bytes");
    return std::ceil(bytes / unit) * unit / rate("channel_mb_s");
  }
  [[nodiscard]] double read_us(double bytes) const {  // within a page
    return real("command_latency_us") + real("command_overhead_us") + real("read_us") +
           on_channel(bytes) + bytes / rate("link_mb_s");
  }
  [[nodiscard]] double map_read_us() const {
    if (integer("map_cache_entries") == 0) return 0;
    return real("read_us") + on_channel(4 * integer("map_line_entries"));
  }
  [[nodiscard]] double peak_mb_s() const {
    return std::min(integer("channels") * rate("channel_mb_s"), rate("link_mb_s"));
  }
  const Arguments& arguments;
};

TEST(Presets, UnloadedLatencyIsThatOfTheFormula) {
  for (const DeviceSpec& spec : all_presets()) {
    const PresetModel model(spec);
    for (double bytes = model.integer("logical_block_bytes"); bytes <= model.integer("page_bytes");
         bytes *= 2) {
      const std::string what = spec.name + ", " + std::to_string(static_cast<int>(bytes)) + " B";
      Workload workload{.bytes = static_cast<std::uint64_t>(bytes), .requests = 200};
      workload.range_bytes = 16 * 1024 * kKiB;  // whose map is soon cached
      const Measurement held = measure(spec, workload);
      expect_close(what + ", us", held.p50_us, model.read_us(bytes));
      expect_close(what + ", IOPS at depth 1", 1e6 / held.p50_us, 1e6 / model.read_us(bytes));
      workload.range_bytes = 256ull << 30;
      expect_close(what + " anywhere, us", measure(spec, workload).p50_us,
                   model.read_us(bytes) + model.map_read_us());
    }
  }
}

TEST(Presets, ReachTheirPeakAndNoLimitIsExceeded) {
  for (const DeviceSpec& spec : all_presets()) {
    const PresetModel model(spec);
    const auto max = static_cast<std::uint64_t>(model.integer("max_transfer_bytes"));
    const auto depth = static_cast<std::uint32_t>(2 * model.integer("queue_depth"));
    const Measurement peak =
        measure(spec, {.bytes = max, .depth = depth, .requests = 1500, .sequential = true});
    expect_close(spec.name + ", peak MB/s", peak.mb_s, model.peak_mb_s());
    for (const std::uint64_t bytes : {std::uint64_t{4096}, std::uint64_t{65536}, max}) {
      for (const std::uint32_t at : {1u, 2u, 8u, depth}) {
        const Measurement m = measure(spec, {.bytes = bytes, .depth = at, .requests = 1000});
        const double inside = std::min<double>(at, model.integer("queue_depth"));
        const double us = m.run_seconds * 1e6 * (1 + 1e-9);
        const auto commands = static_cast<double>(m.counters.read_commands);
        EXPECT_LE(static_cast<double>(m.counters.host_read_bytes), us * model.peak_mb_s())
            << spec.name;
        EXPECT_LE(commands * model.real("command_overhead_us"), us) << spec.name;
        EXPECT_LE(commands * model.read_us(4096), us * inside) << spec.name;
      }
    }
  }
}

TEST(Presets, TheHotPhoneIsTheColdOneWithItsHeat) {
  const DeviceSpec cold = preset("ufs40");
  const DeviceSpec hot = preset("ufs40_hot");
  for (const auto& [name, argument] : hot.device.arguments().all()) {
    if (!name.starts_with("thermal_")) {
      const Value& value = cold.device.arguments().all().find(name)->second.value;
      EXPECT_EQ(to_text(argument.value), to_text(value)) << name;
    }
  }
}

TEST(Presets, NvmeOfAJetson) {
  const DeviceSpec spec = preset("nvme_jetson");
  const double peak = reads(spec, 1024 * kKiB, 64).mb_s;
  EXPECT_NEAR(peak, 1800, 18);
  double small = 0;  // the best of all depths
  for (const std::uint32_t depth : {1u, 4u, 16u, 64u, 256u}) {
    small = std::max(small, reads(spec, 512, depth).mb_s);
  }
  EXPECT_LT(small, 0.06 * peak);  // KVSwap
  const double latency = reads(spec, 4 * kKiB, 1).mean_us;
  EXPECT_GE(latency, 73);
  EXPECT_LE(latency, 87);
  EXPECT_GE(reads(spec, 4 * kKiB, 256).iops, 200e3);
}

TEST(Presets, EmmcOfAJetson) {
  const DeviceSpec spec = preset("emmc51");
  const double peak = reads(spec, 1024 * kKiB, 31).mb_s;
  EXPECT_NEAR(peak, 250, 2.5);
  EXPECT_LT(reads(spec, 512, 31).mb_s, 0.06 * peak);  // KVSwap
  const double latency = reads(spec, 4 * kKiB, 1).mean_us;
  EXPECT_GE(latency, 240);
  EXPECT_LE(latency, 290);
  EXPECT_NEAR(reads(spec, 16 * kKiB, 1).mean_us, 357, 0.1 * 357);  // rock64 and SPeMMC
  const double iops = reads(spec, 4 * kKiB, 31).iops;
  EXPECT_GE(iops, 11e3);
  EXPECT_LE(iops, 21e3);
}

TEST(Presets, UfsOfAPhone) {
  const DeviceSpec spec = preset("ufs40");
  // Within the GiB that the map cache covers, like a KV cache.
  const auto near = [&](std::uint64_t bytes, std::uint32_t depth) {
    return measure(
        spec,
        {.bytes = bytes, .depth = depth, .requests = 20'000, .range_bytes = 512 * 1024 * kKiB});
  };
  EXPECT_NEAR(near(4 * kKiB, 1).mean_us, 75, 2);
  const double iops = near(4 * kKiB, 32).iops;
  EXPECT_GE(iops, 105e3);
  EXPECT_LE(iops, 250e3);

  // DynaKV: bandwidth grows almost linearly with the size up to 24 KB, and hardly beyond.
  const double at_4k = near(4 * kKiB, 32).mb_s;
  EXPECT_GT(near(8 * kKiB, 32).mb_s, 0.95 * 2 * at_4k);
  EXPECT_GT(near(16 * kKiB, 32).mb_s, 0.95 * 4 * at_4k);
  EXPECT_GT(near(24 * kKiB, 32).mb_s, 0.75 * 6 * at_4k);
  EXPECT_LT(near(128 * kKiB, 32).mb_s, 1.15 * near(24 * kKiB, 32).mb_s);

  // Over the whole device, each read also senses the map.
  EXPECT_GT(reads(spec, 4 * kKiB, 1).mean_us, 75 + 40);

  // On blocks of 4096 bytes, 512 bytes cost as much as 4096.
  EXPECT_NEAR(near(512, 32).iops / iops, 1, 0.01);
}

}  // namespace
}  // namespace kvreplay
