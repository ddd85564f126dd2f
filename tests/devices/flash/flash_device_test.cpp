// Checks the flash model against the closed forms of docs/device-model.md. Each test prints its
// deviation.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "devices/calibration/measure.hpp"
#include "tests/devices/flash/flash_spec.hpp"

namespace kvreplay {
namespace {

using test::expect_close;
using test::flash;
using test::Overrides;
using test::preset;
using test::random_spec;

/// The parameters of a spec, in microseconds and bytes per microsecond (= MB/s).
struct Model {
  explicit Model(const DeviceSpec& spec) : spec_(spec) {}
  [[nodiscard]] double integer(const char* name) const {
    return static_cast<double>(spec_.device.arguments().integer(name));
  }
  [[nodiscard]] double real(const char* name) const { return spec_.device.arguments().real(name); }

  /// Latency of one read that begins at a multiple of its size, on an idle device with
  /// program_pages = 1 and powers of two for channels, dies, planes and sizes.
  [[nodiscard]] double unloaded_read_us(double bytes) const {
    const double page = integer("page_bytes");
    const double unit = integer("read_unit_bytes");
    const double planes = integer("planes");
    const double channels = integer("channels");
    const double read = real("read_us");
    const double front = real("command_latency_us") + real("command_overhead_us");
    if (bytes <= page) {
      return front + read + std::ceil(bytes / unit) * unit / real("channel_mb_s") +
             bytes / real("link_mb_s");
    }
    const double on_channel = page / real("channel_mb_s");
    const double on_link = page / real("link_mb_s");
    const double pages = bytes / page;
    const double groups = std::max(1.0, pages / planes);
    const double channels_used = std::min(channels, groups);
    const double dies_used = std::min(integer("dies_per_channel"), groups / channels_used);
    const double rounds = groups / (channels_used * dies_used);
    const double pages_a_channel = pages / channels_used;
    const double pages_a_round = pages_a_channel / rounds;
    const double tail = channels_used * on_link;
    return front + std::max({read + on_channel + pages * on_link,
                             read + pages_a_channel * on_channel + tail,
                             rounds * read + pages_a_round * on_channel + tail});
  }

 private:
  const DeviceSpec& spec_;
};

TEST(FlashModel, UnloadedReadLatency) {
  struct Case {
    std::string name;
    DeviceSpec spec;
    double max_bytes;
  };
  const std::vector<Case> cases{
      {"channel bound", flash({{"channel_mb_s", "300"}}), 1 << 20},
      {"link bound", flash({{"link_mb_s", "500"}}), 1 << 20},
      {"die bound", flash({{"read_us", "300"}}), 1 << 20},
      {"one plane, whole pages", flash({{"planes", "1"}, {"read_unit_bytes", "16384"}}), 1 << 20},
      {"nvme_jetson", preset("nvme_jetson"), 1 << 19},
      {"emmc51", preset("emmc51"), 1 << 19},
      {"nvme_x1", preset("nvme_x1"), 1 << 19},
  };
  for (const Case& c : cases) {
    const Model model(c.spec);
    for (double bytes = 512; bytes <= c.max_bytes; bytes *= 2) {
      if (bytes < model.integer("logical_block_bytes")) continue;
      const Measurement measured =
          measure(c.spec, {.bytes = static_cast<std::uint64_t>(bytes), .requests = 50});
      expect_close(c.name + ", " + std::to_string(static_cast<int>(bytes)) + " B, us",
                   measured.mean_us, model.unloaded_read_us(bytes));
      EXPECT_NEAR(measured.max_us, measured.mean_us, 0.001);
    }
  }
}

TEST(FlashModel, IopsByDepthFollowTheTandemLine) {
  // One die: every command passes the same servers, so the line is min(depth / latency, slowest).
  for (const Overrides& binding :
       {Overrides{{"command_overhead_us", "30"}, {"read_us", "20"}}, Overrides{{"read_us", "15"}},
        Overrides{{"channel_mb_s", "100"}}, Overrides{{"link_mb_s", "50"}}}) {
    Overrides overrides{{"channels", "1"},
                        {"dies_per_channel", "1"},
                        {"command_latency_us", "300"},
                        {"queue_depth", "16"}};
    overrides.insert(overrides.end(), binding.begin(), binding.end());
    const DeviceSpec spec = flash(overrides);
    const Model model(spec);
    const double bytes = 4096;
    const double slowest =
        std::max({model.real("command_overhead_us"), model.real("read_us"),
                  bytes / model.real("channel_mb_s"), bytes / model.real("link_mb_s")});
    for (const std::uint32_t depth : {1u, 2u, 4u, 8u, 16u, 64u}) {
      const double inside = std::min(16.0, static_cast<double>(depth));
      const double iops = 1e6 * std::min(inside / model.unloaded_read_us(bytes), 1 / slowest);
      const Measurement measured = measure(spec, {.bytes = 4096, .depth = depth, .requests = 3000});
      expect_close("IOPS, " + binding.front().first + ", depth " + std::to_string(depth),
                   measured.iops, iops);
    }
  }
}

TEST(FlashModel, EachLimitBindsWhenItIsTheSmallest) {
  struct Case {
    std::string name;
    Overrides overrides;
    std::uint64_t bytes;
    double mb_s;
  };
  const double kPage = 16384;
  const std::vector<Case> cases{
      // 2 commands in 500 + 2 + 1 us and their transfers, and hardly a collision on the dies
      {"queue depth",
       {{"queue_depth", "2"}, {"command_latency_us", "500"}, {"read_us", "1"}},
       4096,
       2 * 4096 / (503 + 4096 / 800.0 + 4096 / 4000.0)},
      {"controller", {{"command_overhead_us", "50"}}, 4096, 4096 / 50.0},
      {"one die",
       {{"channels", "1"}, {"dies_per_channel", "1"}, {"read_us", "90"}},
       4096,
       4096 / 90.0},
      // 256 KiB are one group of 2 pages on each of the 8 dies.
      {"all dies", {{"read_us", "900"}}, 1 << 18, 8 * 2 * kPage / 900},
      {"one channel", {{"channels", "1"}, {"channel_mb_s", "60"}}, 1 << 18, 60},
      {"all channels", {{"channel_mb_s", "60"}}, 1 << 18, 240},
      {"link", {{"link_mb_s", "100"}}, 1 << 18, 100},
      {"read unit",
       {{"channels", "1"}, {"channel_mb_s", "60"}, {"read_unit_bytes", "16384"}},
       4096,
       60.0 / 4},
  };
  for (const Case& c : cases) {
    const Measurement measured =
        measure(flash(c.overrides), {.bytes = c.bytes, .depth = 64, .requests = 4000});
    expect_close(c.name + " binds, MB/s", measured.mb_s, c.mb_s);
  }
}

TEST(FlashModel, TheBufferAbsorbsWritesUntilTheProgramRateBinds) {
  const Overrides overrides{{"write_buffer_bytes", "4194304"}, {"link_mb_s", "2000"}};
  // 2 MiB in 32 requests all go to the buffer, at the rate of the link.
  const Measurement burst =
      measure(flash(overrides), {.bytes = 1 << 16, .depth = 16, .requests = 16, .write_share = 1});
  expect_close("absorbed burst, MB/s", burst.mb_s, 2000);

  // In the long run, one program operation of 2 pages takes 400 us on each of 8 dies.
  const double program_rate = 8 * 2 * 16384 / 400.0;
  const Measurement steady = measure(
      flash(overrides), {.bytes = 1 << 16, .depth = 64, .requests = 20'000, .write_share = 1});
  expect_close("steady writes, MB/s", steady.mb_s, program_rate);

  // A write larger than the buffer passes through it.
  const Measurement large = measure(
      flash({{"write_buffer_bytes", "32768"}, {"channels", "1"}, {"dies_per_channel", "1"}}),
      {.bytes = 1 << 20, .depth = 2, .requests = 50, .write_share = 1});
  const double cycle = 32768 / 4000.0 + 32768 / 800.0 + 400;  // fill, move to the die, program
  expect_close("writes through a small buffer, MB/s", large.mb_s, 32768 / cycle, 0.02);
}

TEST(FlashModel, AWriteMayHaveItsOwnLatencyOverheadAndRate) {
  const Overrides overrides{
      {"write_latency_us", "70"}, {"write_overhead_us", "11"}, {"write_link_mb_s", "512"}};
  const auto run = [&](double write_share, std::uint32_t depth) {
    return measure(flash(overrides),
                   {.bytes = 4096, .depth = depth, .requests = 200, .write_share = write_share});
  };
  expect_close("write, us", run(1, 1).mean_us, 70 + 11 + 4096 / 512.0);
  expect_close("writes, IOPS", run(1, 32).iops, 1e6 / 11);
  EXPECT_DOUBLE_EQ(run(0, 1).mean_us, measure(flash(), {.bytes = 4096, .requests = 200}).mean_us);
  const Measurement mix = run(0.5, 1);
  EXPECT_GT(mix.read_mean_us, run(0, 1).mean_us);  // some wait for a program
  EXPECT_DOUBLE_EQ(mix.write_mean_us, run(1, 1).mean_us);
}

TEST(FlashModel, AFullWriteBufferBeginsAsItGoesOn) {
  // So few writes would all find room in an empty buffer.
  Workload workload{.bytes = 1 << 16, .depth = 16, .requests = 256, .write_share = 1};
  const Overrides large{{"write_buffer_bytes", "67108864"}};
  const double program_rate = 8 * 2 * 16384 / 400.0;
  EXPECT_GT(measure(flash(large), workload).mb_s, 3 * program_rate);
  workload.write_buffer_full = true;
  expect_close("writes, MB/s", measure(flash(large), workload).mb_s, program_rate, 0.03);
  // Writes that arrive more slowly than the dies program find room again.
  workload.depth = 1;
  expect_close("slow writes, us", measure(flash({{"write_latency_us", "5000"}}), workload).mean_us,
               5000 + 2 + 65536 / 4000.0);
  // The garbage collector's counters add up.
  EXPECT_GT(
      measure(flash({{"gc_capacity_bytes", "67108864"}, {"gc_block_stripes", "4"}}), workload).iops,
      0);
}

TEST(FlashModel, AHalfDuplexLinkIsShared) {
  const Overrides overrides{{"link_mb_s", "100"}, {"program_us", "10"}};
  const auto mixed = [](const DeviceSpec& spec) {
    return measure(spec, {.bytes = 1 << 16, .depth = 32, .requests = 10'000, .write_share = 0.5});
  };
  Overrides half = overrides;
  half.emplace_back("link_duplex", "half");
  expect_close("half duplex, MB/s", mixed(flash(half)).mb_s, 100);
  // Full duplex gives up to twice as much, minus what a random mix leaves idle.
  const double full = mixed(flash(overrides)).mb_s;
  EXPECT_GT(full, 150);
  EXPECT_LE(full, 200.1);
}

TEST(FlashModel, NothingIsFasterThanPhysicsAndNoByteIsLost) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const DeviceSpec spec = random_spec(random);
    const Model model(spec);
    const Workload workload{.bytes = std::uint64_t{4096} << random.below(8),
                            .depth = static_cast<std::uint32_t>(1 + random.below(48)),
                            .requests = 300,
                            .write_share = std::vector<double>{0, 0, 0.4, 1}[random.below(4)],
                            .range_bytes = 1 << 30,
                            .seed = seed};
    const Measurement result = measure(spec, workload);
    const DeviceCounters& counters = result.counters;
    const double us = result.run_seconds * 1e6 * (1 + 1e-9);
    const auto read_bytes = static_cast<double>(counters.host_read_bytes);
    const auto write_bytes = static_cast<double>(counters.host_write_bytes);
    const auto sensed_bytes = static_cast<double>(counters.flash_read_bytes);
    const auto programmed_bytes = static_cast<double>(counters.flash_write_bytes);
    const double dies = model.integer("channels") * model.integer("dies_per_channel");
    const double group_bytes = model.integer("page_bytes") * model.integer("planes");
    const double stripe_bytes = group_bytes * model.integer("program_pages");

    if (spec.device.arguments().text("link_duplex") == "half") {
      EXPECT_LE(read_bytes + write_bytes, us * model.real("link_mb_s"));
    }
    EXPECT_LE(std::max(read_bytes, write_bytes), us * model.real("link_mb_s"));
    EXPECT_LE(sensed_bytes + programmed_bytes,
              us * model.real("channel_mb_s") * model.integer("channels"));
    const auto read_commands = static_cast<double>(counters.read_commands);
    const auto commands = read_commands + static_cast<double>(counters.write_commands);
    // Parameters are kept in whole nanoseconds.
    const double overhead_us = model.real("command_overhead_us") - 0.0005;
    const double read_us = model.real("read_us") - 0.0005;
    const double program_us = model.real("program_us") - 0.0005;
    EXPECT_LE(commands * overhead_us, us);
    EXPECT_LE(std::max(read_commands, sensed_bytes / group_bytes) * read_us +
                  programmed_bytes / stripe_bytes * program_us,
              us * dies);
    const double inside = std::min(model.integer("queue_depth"), commands);
    EXPECT_LE(commands * (model.real("command_latency_us") - 0.0005), us * inside);

    // Conservation. The loop submits depth requests, then one for each of depth + requests - 1
    // completions.
    const std::uint64_t requests = 2 * workload.depth + workload.requests - 1;
    EXPECT_EQ(counters.host_read_bytes + counters.host_write_bytes, requests * workload.bytes);
    EXPECT_GE(counters.flash_read_bytes, counters.host_read_bytes);
    EXPECT_LE(sensed_bytes,
              read_bytes + read_commands * 2 * (model.integer("read_unit_bytes") - 512));
    EXPECT_LE(programmed_bytes, write_bytes);
    EXPECT_LT(write_bytes, programmed_bytes + stripe_bytes);

    EXPECT_LE(result.p50_us, result.p90_us);
    EXPECT_LE(result.p90_us, result.p99_us);
    EXPECT_LE(result.p99_us, result.p999_us);
    EXPECT_LE(result.p999_us, result.max_us);
  }
}

TEST(FlashModel, RoundingToNanosecondsNeverBeatsTheLink) {
  // 512 bytes at 3000 MB/s are 170.7 ns.
  const DeviceSpec spec = flash({{"read_us", "0"},
                                 {"command_overhead_us", "0"},
                                 {"command_latency_us", "1"},
                                 {"read_unit_bytes", "512"},
                                 {"channel_mb_s", "1000000"},
                                 {"link_mb_s", "3000"}});
  const Measurement result = measure(spec, {.bytes = 512, .depth = 64, .requests = 5000});
  EXPECT_GT(result.mb_s, 2985);
  EXPECT_LE(result.mb_s, 3000);
}

TEST(FlashModel, LittlesLawHolds) {
  for (const std::uint32_t depth : {1u, 8u, 32u, 100u}) {
    const Measurement m = measure(flash(), {.bytes = 8192, .depth = depth, .requests = 20'000});
    expect_close("IOPS x mean latency, depth " + std::to_string(depth), m.iops * m.mean_us * 1e-6,
                 depth);
  }
}

TEST(FlashModel, IsDeterministicAndDependsOnTheSeed) {
  const DeviceSpec spec = preset("ufs40");
  const auto run = [&](std::uint64_t seed) {
    const Measurement m = measure(
        spec, {.bytes = 12288, .depth = 24, .requests = 3000, .write_share = 0.3, .seed = seed});
    return std::vector<double>{m.seconds, m.mean_us, m.p50_us, m.p99_us, m.max_us};
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

struct Log final : EventHandler {
  void on_event(std::uint64_t argument) override { seen.push_back(argument); }
  std::vector<std::uint64_t> seen;
};

TEST(FlashModel, CommandsBeyondTheQueueDepthWaitInOrder) {
  Simulation simulation;
  const auto device = flash({{"queue_depth", "3"}}).make(simulation);
  Log log;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t i = 0; i < 40; ++i) {
    device->submit({0, 4096, false}, log, i);  // one die serves them all
    expected.push_back(i);
  }
  simulation.run();
  EXPECT_EQ(log.seen, expected);
  EXPECT_EQ(device->counters().read_commands, 40u);
}

TEST(FlashModel, ACommandThatBreaksTheLimitsIsABug) {
  Simulation simulation;
  const auto device = flash({{"logical_block_bytes", "4096"}}).make(simulation);
  Log log;
  for (const IoCommand& command :
       {IoCommand{512, 4096}, IoCommand{0, 512}, IoCommand{0, 0}, IoCommand{0, (1 << 20) + 4096}}) {
    EXPECT_THROW(device->submit(command, log, 0), std::logic_error);
  }
}

TEST(FlashModel, AMultiPlaneReadSensesOnce) {
  // Two pages of one group are sensed together; two pages of different groups on one die, in turn.
  const DeviceSpec spec = flash({{"channels", "1"}, {"dies_per_channel", "1"}});
  const auto latency = [&](std::uint64_t offset) {
    Simulation simulation;
    const auto device = spec.make(simulation);
    Log log;
    device->submit({offset, 32768, false}, log, 0);
    simulation.run();
    return simulation.now();
  };
  const SimTime on_channel = 20'480;  // 16 KiB at 800 MB/s
  const SimTime on_link = 4'096;
  EXPECT_EQ(latency(0), 22'000 + 40'000 + 2 * on_channel + on_link);
  EXPECT_EQ(latency(16384), 22'000 + 2 * 40'000 + on_channel + on_link);
}

// ----- invalid configs

std::string refusal(const Overrides& overrides) {
  try {
    Simulation simulation;
    const auto device = flash(overrides).make(simulation);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(FlashConfig, MistakesAreNamed) {
  const auto expect_parts = [](const Overrides& overrides, const std::vector<std::string>& parts) {
    const std::string message = refusal(overrides);
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  expect_parts({{"read_uss", "3"}}, {"test.json", "read_uss", "did you mean 'read_us'"});
  expect_parts({{"read_us", "-1"}}, {"test.json: /read_us", "-1", "from 0"});
  expect_parts({{"channels", "0"}}, {"/channels", "from 1"});
  expect_parts({{"channels", "2.5"}}, {"/channels", "2.5", "integer"});
  expect_parts({{"queue_depth", "\"many\""}}, {"/queue_depth", "many", "integer from 1 to 65535"});
  expect_parts({{"link_mb_s", "0"}}, {"/link_mb_s", "from 0.001"});
  expect_parts({{"link_duplex", "ful"}}, {"/link_duplex", "did you mean 'full'"});
  expect_parts({{"page_bytes", "5000"}}, {"/page_bytes", "5000", "logical_block_bytes = 512"});
  expect_parts({{"read_unit_bytes", "3072"}}, {"/page_bytes", "read_unit_bytes = 3072"});
  expect_parts({{"max_transfer_bytes", "1000"}}, {"/max_transfer_bytes", "1000"});
  expect_parts({{"write_buffer_bytes", "4096"}}, {"/write_buffer_bytes", "4096", "32768"});
  expect_parts({{"part", "flesh"}}, {"/part", "unknown device 'flesh'", "did you mean 'flash'"});
}

TEST(FlashConfig, ARequiredParameterIsMissed) {
  EXPECT_THROW(
      {
        try {
          static_cast<void>(DeviceSpec::parse(ConfigNode::parse(
              R"({"name": "n", "title": "t", "part": "flash", "queue_depth": 1})", "x.json")));
        } catch (const UserError& error) {
          EXPECT_NE(std::string(error.what()).find("logical_block_bytes"), std::string::npos);
          throw;
        }
      },
      UserError);
}

TEST(Measure, ThePathIsBesideTheDevice) {
  const DeviceSpec spec = flash();
  for (const std::uint32_t depth : {1u, 4u, 32u}) {
    Workload workload{.bytes = 4096, .depth = depth, .requests = 4000};
    const Measurement without = measure(spec, workload);
    workload.path_us = 100;
    const Measurement with = measure(spec, workload);
    // Little's law holds with and without it.
    EXPECT_NEAR(with.iops * with.mean_us * 1e-6, depth, 0.01 * depth);
    if (depth == 1) {
      EXPECT_NEAR(with.mean_us, without.mean_us + 100, 1e-3);
    } else {
      // Requests on their way do not queue.
      EXPECT_LT(with.mean_us, without.mean_us + 100);
      EXPECT_LE(with.iops, without.iops * 1.001);
    }
  }
  // The way does not change the rate of a busy device.
  const DeviceSpec slow = flash({{"command_overhead_us", "500"}});
  Workload workload{.bytes = 4096, .depth = 32, .requests = 4000};
  const double without = measure(slow, workload).iops;
  workload.path_us = 100;
  EXPECT_NEAR(measure(slow, workload).iops / without, 1, 1e-3);
}

TEST(Measure, RefusesAWorkloadThatMakesNoSense) {
  const DeviceSpec spec = flash();
  EXPECT_THROW((void)measure(spec, {.bytes = 0}), UserError);
  EXPECT_THROW((void)measure(spec, {.depth = 0}), UserError);
  EXPECT_THROW((void)measure(spec, {.depth = 8, .requests = 7}), UserError);
  EXPECT_THROW((void)measure(spec, {.write_share = 1.5}), UserError);
  EXPECT_THROW((void)measure(spec, {.bytes = 8192, .range_bytes = 4096}), UserError);
}

}  // namespace
}  // namespace kvreplay
