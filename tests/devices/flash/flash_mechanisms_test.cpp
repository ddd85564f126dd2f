// The optional mechanisms of the flash model: each has its effect, and none when it is off.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "devices/calibration/measure.hpp"
#include "devices/flash/garbage_collector.hpp"
#include "devices/flash/map_cache.hpp"
#include "devices/flash/partial_writes.hpp"
#include "devices/flash/thermal.hpp"
#include "tests/devices/flash/flash_spec.hpp"

namespace kvreplay {
namespace {

using test::expect_close;
using test::flash;
using test::Overrides;
using test::random_spec;

constexpr std::uint64_t kMiB = 1 << 20;

/// Submits one command after the other, each when the previous one is done, and records their
/// latencies.
class OneByOne final : public EventHandler {
 public:
  explicit OneByOne(const DeviceSpec& spec) : device_(spec.make(simulation_)) {}

  void run(std::vector<IoCommand> commands) {
    commands_ = std::move(commands);
    next_ = 0;
    latencies.clear();
    submit();
    simulation_.run();
  }
  /// Lets time pass.
  void idle(SimTime duration) {
    struct Nothing final : EventHandler {
      void on_event(std::uint64_t /*argument*/) override {}
    } nothing;
    simulation_.schedule(simulation_.now() + duration, nothing, 0);
    simulation_.run();
  }
  void on_event(std::uint64_t /*argument*/) override {
    latencies.push_back(simulation_.now() - submitted_);
    if (++next_ < commands_.size()) submit();
  }
  [[nodiscard]] const Device& device() const { return *device_; }
  [[nodiscard]] SimTime now() const { return simulation_.now(); }

  std::vector<SimTime> latencies;

 private:
  void submit() {
    submitted_ = simulation_.now();
    device_->submit(commands_[next_], *this, 0);
  }

  Simulation simulation_;
  std::unique_ptr<Device> device_;
  std::vector<IoCommand> commands_;
  std::size_t next_ = 0;
  SimTime submitted_ = 0;
};

std::vector<IoCommand> commands_at(const std::vector<std::uint64_t>& offsets, std::uint32_t bytes,
                                   bool write) {
  std::vector<IoCommand> commands;
  for (const std::uint64_t offset : offsets) commands.push_back({offset, bytes, write});
  return commands;
}

// ----- off

/// A hash of all times and counts of 60 random devices and workloads.
std::uint64_t fingerprint(const Overrides& overrides) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](double value) {
    hash = (hash ^ static_cast<std::uint64_t>(std::llround(value))) * 0x100000001b3u;
  };
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const DeviceSpec spec = random_spec(random, overrides);
    const Workload workload{.bytes = std::uint64_t{4096} << random.below(8),
                            .depth = static_cast<std::uint32_t>(1 + random.below(48)),
                            .requests = 300,
                            .write_share = std::vector<double>{0, 0, 0.4, 1}[random.below(4)],
                            .range_bytes = 1 << 30,
                            .seed = seed};
    const Measurement m = measure(spec, workload);
    for (const double us : {m.p50_us, m.p90_us, m.p99_us, m.p999_us, m.max_us, m.seconds * 1e6,
                            m.run_seconds * 1e6}) {
      add(us * 1000);
    }
    add(static_cast<double>(m.events));
    add(static_cast<double>(m.counters.flash_read_bytes));
    add(static_cast<double>(m.counters.flash_write_bytes));
  }
  return hash;
}

TEST(Mechanisms, ThoseThatAreOffChangeNothing) {
  // The hash for the model without any mechanisms.
  constexpr std::uint64_t kPlain = 0x13ea04870846b177;
  EXPECT_EQ(fingerprint({}), kPlain);
  for (const Overrides& off :
       {Overrides{{"map_line_entries", "16"}}, Overrides{{"suspend_us", "50"}},
        Overrides{{"retry_us", "500"}, {"retry_seed", "7"}},
        Overrides{{"booster_program_us", "1"}, {"booster_idle_us", "0"}},
        Overrides{{"gc_spare_percent", "20"}, {"erase_us", "99999"}},
        Overrides{{"thermal_start_c", "99"}, {"thermal_c_per_gb", "900"}},
        Overrides{{"service_seed", "7"}}}) {
    EXPECT_EQ(fingerprint(off), kPlain) << off.front().first;
  }
  // When on, each mechanism changes something.
  for (const Overrides& on :
       {Overrides{{"write_latency_us", "7"}}, Overrides{{"write_overhead_us", "7"}},
        Overrides{{"write_link_mb_s", "200"}}, Overrides{{"map_cache_entries", "4096"}},
        Overrides{{"map_unit_bytes", "65536"}}, Overrides{{"suspend_programs", "true"}},
        Overrides{{"retry_percent", "1"}},
        Overrides{{"booster_bytes", "16777216"}, {"booster_program_us", "1"}},
        Overrides{{"gc_capacity_bytes", "67108864"},
                  {"gc_spare_percent", "150"},
                  {"gc_block_stripes", "1"}},
        Overrides{{"thermal_rate_percent", "50"}, {"thermal_start_c", "99"}},
        Overrides{{"command_queue", "false"}}, Overrides{{"service_order", "random"}}}) {
    EXPECT_NE(fingerprint(on), kPlain) << on.front().first;
  }
}

// ----- address map

TEST(MapCache, EvictsTheLeastRecentlyUsedLine) {
  const DeviceSpec spec = flash({{"map_cache_entries", "8192"}, {"map_line_entries", "1024"}});
  flash::MapCache cache(spec.device.arguments());
  std::vector<std::uint64_t> reference;  // most recently used last
  Random random(3);
  int hits = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t line = random.below(12);
    const auto found = std::find(reference.begin(), reference.end(), line);
    const bool hit = found != reference.end();
    ASSERT_EQ(cache.touch(line), hit) << i;
    if (hit) {
      reference.erase(found);
      ++hits;
    } else {
      cache.insert(line);
      if (reference.size() == 8) reference.erase(reference.begin());
    }
    reference.push_back(line);
  }
  EXPECT_NEAR(hits / 20'000.0, 8 / 12.0, 0.02);
}

TEST(MapCache, BeyondItsReachEveryReadSensesTwice) {
  // 16 lines of 1024 entries of 4 KiB: a reach of 64 MiB.
  const DeviceSpec spec = flash({{"map_cache_entries", "16384"}, {"map_unit_bytes", "4096"}});
  const double hit = 22 + 40 + 4096 / 800.0 + 4096 / 4000.0;
  const auto read = [&](std::uint64_t range) {
    return measure(spec, {.bytes = 4096, .requests = 4000, .range_bytes = range});
  };
  const Measurement inside = read(64 * kMiB);
  expect_close("inside the reach, us", inside.p50_us, hit, 0.001);
  EXPECT_EQ(inside.counters.map_read_bytes, 0u);  // a long run has read every line before
  // A new device has read none.
  Simulation simulation;
  const auto device = spec.make(simulation);
  struct Ignore final : EventHandler {
    void on_event(std::uint64_t /*argument*/) override {}
  } done;
  for (std::uint64_t offset = 0; offset < 64 * kMiB; offset += kMiB) {
    device->submit({offset, 4096, false}, done, 0);
    simulation.run();
  }
  EXPECT_EQ(device->counters().map_read_bytes, 16u * 4096);  // each line once
  const Measurement beyond = read(64 * 1024 * kMiB);
  expect_close("beyond it, us", beyond.p50_us, hit + 40 + 4096 / 800.0, 0.001);
  // At twice the reach, half of the reads miss.
  const Measurement twice = read(128 * kMiB);
  expect_close("at twice the reach, mean us", twice.mean_us, hit + 0.5 * (40 + 4096 / 800.0), 0.02);
  // Without the cache, the range does not matter.
  const auto plain = [](std::uint64_t range) {
    return measure(flash(), {.bytes = 4096, .requests = 500, .range_bytes = range}).mean_us;
  };
  EXPECT_EQ(plain(64 * kMiB), plain(64 * 1024 * kMiB));
}

// ----- writes smaller than a unit

TEST(PartialWrites, WholeUnitsAreWrittenWhateverTheWrites) {
  constexpr std::uint64_t kUnit = 16384;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    flash::PartialWrites partial(flash({{"map_unit_bytes", "16384"}}).device.arguments());
    std::uint64_t written = 0;
    std::uint64_t units = 0;
    std::uint64_t end = 0;
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t offset = random.below(3) == 0 ? end : random.below(100) * 4096;
      const std::uint64_t bytes = (1 + random.below(12)) * 4096;
      const auto extra = partial.add(offset, bytes);
      if (offset == end) {
        EXPECT_EQ(extra.reads, 0u);
      }
      written += bytes + extra.rewritten_bytes;
      units += extra.new_units;
      end = offset + bytes;
      const std::uint64_t open = (kUnit - end % kUnit) % kUnit;
      ASSERT_EQ(written + open, units * kUnit) << "seed " << seed << ", write " << i;
    }
  }
}

TEST(PartialWrites, ASmallRandomWriteCostsAUnit) {
  const DeviceSpec spec = flash({{"map_unit_bytes", "16384"}});
  Workload workload{.bytes = 4096, .depth = 16, .requests = 20'000, .write_share = 1};
  const Measurement random = measure(spec, workload);
  expect_close("write amplification at random", random.counters.write_amplification(), 4, 0.02);
  EXPECT_GT(random.counters.flash_read_bytes, 0u);
  // In the long run the 8 dies are the limit: a program of 400 us per 32 KiB, and half as many
  // reads.
  const double units_a_second =
      8 / (400e-6 / 2 + 40e-6 * 2);  // closing and opening read a unit each
  EXPECT_LT(random.iops, 4 * units_a_second);

  workload.sequential = true;
  const Measurement sequential = measure(spec, workload);
  EXPECT_NEAR(sequential.counters.write_amplification(), 1, 0.01);
  EXPECT_EQ(sequential.counters.flash_read_bytes, 0u);
  EXPECT_GT(sequential.iops, 3 * random.iops);
}

TEST(Reads, OfUnwrittenPagesCostWhatThoseOfWrittenOnesDo) {
  for (const Overrides& overrides :
       {Overrides{}, Overrides{{"map_cache_entries", "16384"}, {"map_unit_bytes", "4096"}},
        Overrides{{"gc_capacity_bytes", "268435456"},
                  {"gc_spare_percent", "50"},
                  {"gc_prefilled_percent", "0"}}}) {
    OneByOne loop(flash(overrides));
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t i = 0; i < 64; ++i) offsets.push_back(i * 65536);
    const auto reads = commands_at(offsets, 4096, false);
    loop.run(reads);  // brings the map
    loop.run(reads);
    const std::vector<SimTime> unwritten = loop.latencies;
    loop.run(commands_at(offsets, 65536, true));
    loop.idle(1'000'000'000);
    loop.run(reads);
    EXPECT_EQ(loop.latencies, unwritten);
  }
}

// ----- suspension

// ----- page registers

/// A stripe on each die.
std::uint64_t bytes_of_stripes(const DeviceSpec& spec) {
  const Arguments& arguments = spec.device.arguments();
  return static_cast<std::uint64_t>(arguments.integer("page_bytes") * arguments.integer("planes") *
                                    arguments.integer("program_pages") *
                                    arguments.integer("channels") *
                                    arguments.integer("dies_per_channel"));
}

/// Latencies of 4 KiB reads at these offsets, one after the other, and how many pages were sensed.
std::vector<SimTime> one_by_one(const Overrides& overrides,
                                const std::vector<std::uint64_t>& offsets, std::uint64_t sensed) {
  OneByOne loop(flash(overrides));
  loop.run(commands_at(offsets, 4096, false));
  EXPECT_EQ(loop.device().counters().sensed_pages, sensed);
  return loop.latencies;
}

TEST(PageRegister, APageThatItsDieSensedLastIsNotSensedAgain) {
  for (const char* suspends : {"false", "true"}) {
    SCOPED_TRACE(suspends);
    const Overrides overrides{{"suspend_programs", suspends}};
    const DeviceSpec spec = flash(overrides);
    const auto page_bytes =
        static_cast<std::uint64_t>(spec.device.arguments().integer("page_bytes"));
    const auto read = static_cast<SimTime>(spec.device.arguments().real("read_us") * 1e3);
    const std::vector<SimTime> same = one_by_one(overrides, {0, 4096, page_bytes - 4096}, 1);
    EXPECT_EQ(same[1], same[0] - read);
    EXPECT_EQ(same[2], same[0] - read);
    // A stripe further on each die, another page of the same one comes between.
    const std::vector<SimTime> between =
        one_by_one(overrides, {0, bytes_of_stripes(spec), 4096}, 3);
    EXPECT_EQ(between[2], between[0]);
  }
}

TEST(PageRegister, AProgramTakesIt) {
  const DeviceSpec spec = flash({});
  OneByOne loop(spec);
  loop.run(commands_at({0}, 4096, false));
  const SimTime sensed = loop.latencies[0];
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t at = 0; at < bytes_of_stripes(spec); at += 4096) offsets.push_back(at);
  loop.run(commands_at(offsets, 4096, true));
  loop.idle(1'000'000'000);
  loop.run(commands_at({0, 0}, 4096, false));
  EXPECT_EQ(loop.latencies[0], sensed);
  EXPECT_LT(loop.latencies[1], sensed);
}

TEST(PageRegister, IsNotReusedWhereSwitchedOffOrInRandomOrder) {
  for (const Overrides& overrides :
       {Overrides{{"reuse_page_register", "false"}}, Overrides{{"service_order", "random"}}}) {
    const std::vector<SimTime> latencies = one_by_one(overrides, {0, 4096, 0}, 3);
    EXPECT_EQ(latencies[1], latencies[0]);
    EXPECT_EQ(latencies[2], latencies[0]);
  }
}

// Small reads in order fill few dies at a time: without the registers they wait for one another.
TEST(PageRegister, SmallReadsInOrderAreNotSlowerThanRandomOnes) {
  for (const std::uint64_t bytes : {512, 4096}) {
    const auto iops = [&](bool sequential) {
      return measure(flash({{"logical_block_bytes", "512"}}),
                     {.bytes = bytes, .depth = 32, .requests = 4000, .sequential = sequential})
          .iops;
    };
    EXPECT_GE(iops(true), 0.99 * iops(false)) << bytes;
  }
}

TEST(Suspension, AReadWaitsForTheInterruptionOnly) {
  const Overrides one_die{{"channels", "1"}, {"dies_per_channel", "1"}, {"program_us", "5000"}};
  const auto read_after_write = [&](const Overrides& more) {
    Overrides overrides = one_die;
    overrides.insert(overrides.end(), more.begin(), more.end());
    OneByOne loop(flash(overrides));
    // A stripe is programmed once it has moved from the buffer to the die. The first read goes
    // before that, and the second arrives meanwhile.
    loop.run({{0, 32768, true}, {1 << 20, 4096, false}, {1 << 20, 4096, false}});
    return std::pair(loop.latencies[2], loop.now());
  };
  const SimTime unloaded = 22'000 + 40'000 + 5'120 + 1'024;
  const auto [waits, end] = read_after_write({});
  EXPECT_GT(waits, 4'900'000);
  const auto [suspends, suspended_end] =
      read_after_write({{"suspend_programs", "true"}, {"suspend_us", "25"}});
  EXPECT_EQ(suspends, unloaded + 25'000);
  // The program ends later by the time that the reads took on the die, and no work is lost.
  EXPECT_EQ(suspended_end - (end - 40'000 - 5'120 - 1'024), 25'000 + 40'000);
}

TEST(Suspension, ChangesNothingForReadsOrWritesAlone) {
  for (const double share : {0.0, 1.0}) {
    const Workload workload{.bytes = 65536, .depth = 16, .requests = 3000, .write_share = share};
    EXPECT_EQ(
        measure(flash(), workload).seconds,
        measure(flash({{"suspend_programs", "true"}, {"suspend_us", "25"}}), workload).seconds);
  }
}

TEST(Suspension, LowersTheReadLatencyOfAMix) {
  const Workload workload{.bytes = 16384, .depth = 8, .requests = 5000, .write_share = 0.05};
  const Measurement waits = measure(flash({{"program_us", "2000"}}), workload);
  const Measurement suspends =
      measure(flash({{"program_us", "2000"}, {"suspend_programs", "true"}}), workload);
  EXPECT_LT(suspends.p90_us, waits.p90_us / 2);
}

// ----- command queue

TEST(CommandQueue, OffMeansOneAtATime) {
  const DeviceSpec off = flash({{"command_queue", "false"}});
  Simulation simulation;
  EXPECT_EQ(off.make(simulation)->limits().queue_depth, 1u);
  const auto iops = [](const DeviceSpec& spec, std::uint32_t depth) {
    return measure(spec, {.bytes = 4096, .depth = depth, .requests = 3000}).iops;
  };
  EXPECT_NEAR(iops(off, 32) / iops(off, 1), 1, 1e-6);
  EXPECT_GT(iops(flash(), 32), 3 * iops(off, 32));
  EXPECT_EQ(test::preset("emmc51").device.arguments().integer("queue_depth"), 31);
  EXPECT_EQ(test::preset("sd_a2").device.arguments().integer("queue_depth"), 31);
}

// ----- read retries

TEST(ReadRetry, AddsAGeometricTail) {
  const double chance = 0.2;
  const auto run = [](const Overrides& overrides) {
    return measure(flash(overrides), {.bytes = 4096, .requests = 50'000});
  };
  const Measurement plain = run({});
  const Overrides on{{"retry_percent", "20"}, {"retry_us", "60"}, {"retry_limit", "100"}};
  const Measurement retried = run(on);
  expect_close("time of retries, us", retried.mean_us - plain.mean_us, 60 * chance / (1 - chance),
               0.02);
  // 4 % of the senses need two repetitions or more, 0.8 % three.
  EXPECT_NEAR(retried.p50_us, plain.p50_us, 0.001);
  EXPECT_NEAR(retried.p90_us, plain.p50_us + 60, 0.001);
  EXPECT_NEAR(retried.p99_us, plain.p50_us + 120, 0.001);

  EXPECT_EQ(run(on).mean_us, retried.mean_us) << "the same seed";
  Overrides other_seed = on;
  other_seed.emplace_back("retry_seed", "2");
  EXPECT_NE(run(other_seed).mean_us, retried.mean_us);
  Overrides limited = on;
  limited[2].second = "1";
  EXPECT_NEAR(run(limited).max_us, plain.max_us + 60, 0.001);
}

// ----- write booster

TEST(WriteBooster, IsFastUntilItIsFullAndAgainAfterAnIdleTime) {
  const Overrides overrides{
      {"program_us", "2000"},      {"booster_bytes", "67108864"},     {"booster_program_us", "100"},
      {"booster_idle_us", "1000"}, {"write_buffer_bytes", "1048576"}, {"program_pages", "2"}};
  const double stripe = 2 * 2 * 16384;
  const double fast = 8 * stripe / 200;  // MB/s: two pages of a plane, 100 us each
  const double slow = 8 * stripe / 2000;
  // The measurement leaves out the first 32 requests, 8 MiB.
  const auto rate = [&](std::uint64_t requests) {
    return measure(
        flash(overrides),
        {.bytes = 262144, .depth = 32, .requests = requests, .write_share = 1, .sequential = true});
  };
  expect_close("boosted writes, MB/s", rate(160).mb_s, fast, 0.05);
  const Measurement both = rate(1600);
  const double bytes = 1600 * 262144.0;
  const double boosted = 67108864 - 32 * 262144.0;
  expect_close("beyond the booster, MB/s", both.mb_s,
               bytes / (boosted / fast + (bytes - boosted) / slow), 0.05);

  OneByOne loop(flash(overrides));
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < 512; ++i) offsets.push_back(i * 262144);
  const auto write = [&] {
    const SimTime start = loop.now();
    loop.run(commands_at(offsets, 262144, true));
    return loop.now() - start;
  };
  const SimTime first = write();
  loop.idle(500'000);  // less than the wait
  const SimTime full = write();
  loop.idle(60'000'000'000);
  const SimTime folded = write();
  EXPECT_GT(full, first * 3 / 2);
  EXPECT_NEAR(static_cast<double>(folded), static_cast<double>(first),
              0.01 * static_cast<double>(first));
  // Folded data was programmed twice.
  const DeviceCounters counters = loop.device().counters();
  EXPECT_EQ(counters.flash_write_bytes, counters.host_write_bytes + 67108864);
}

TEST(WriteBooster, FoldsAtTheRateOfTheDenseBlocks) {
  const Overrides overrides{{"program_us", "960"},
                            {"booster_bytes", "67108864"},
                            {"booster_program_us", "1"},
                            {"booster_idle_us", "1000"}};
  OneByOne loop(flash(overrides));
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < 256; ++i) offsets.push_back(i * 262144);
  loop.run(commands_at(offsets, 262144, true));
  const std::uint64_t before = loop.device().counters().flash_write_bytes;
  loop.idle(1'000'000 + 100'000'000);  // the wait, and 100 ms
  loop.run({{0, 4096, false}});
  // A die folds a stripe in 40 + 960 us; there are 8 dies.
  EXPECT_NEAR(static_cast<double>(loop.device().counters().flash_write_bytes - before),
              100 * 8 * 32768, 8 * 32768);
}

// ----- garbage collection

/// Blocks of 256 units of 4 KiB.
Overrides collecting(std::uint64_t blocks, const std::string& spare_percent) {
  return {{"channels", "1"},
          {"dies_per_channel", "1"},
          {"planes", "1"},
          {"page_bytes", "16384"},
          {"map_unit_bytes", "4096"},
          {"gc_block_stripes", "64"},
          {"gc_capacity_bytes", std::to_string(blocks * 256 * 4096)},
          {"gc_spare_percent", spare_percent}};
}

/// Write amplification of uniform random writes when blocks are cleaned in the order of their
/// writing, which greedy selection approaches as blocks grow (Desnoyers, 'Analytic modeling of SSD
/// write performance', SYSTOR 2012): 1 / (1 - x), where x = exp(-a (1 - x)) is the valid share of a
/// victim and a is the ratio of physical to logical space.
double analytic_write_amplification(double a) {
  double x = 0.5;
  for (int i = 0; i < 100'000; ++i) x = std::exp(-a * (1 - x));
  return 1 / (1 - x);
}

TEST(GarbageCollector, AmplifiesUniformWritesAsTheAnalysisSays) {
  for (const double spare : {10.0, 28.0, 50.0}) {
    constexpr std::uint64_t kBlocks = 600;
    const DeviceSpec spec = flash(collecting(kBlocks, std::to_string(spare)));
    const flash::Geometry geometry(spec.device.arguments());
    flash::GarbageCollector collector(spec.device.arguments(), geometry);
    Random random(11);
    std::uint64_t host = 0;
    std::uint64_t moved = 0;
    const std::uint64_t units = kBlocks * 256;
    const std::uint64_t stripes = units * 12 / 4;
    for (std::uint64_t stripe = 0; stripe < stripes; ++stripe) {
      for (int i = 0; i < 4; ++i) collector.host_writes(random.below(units), 1);
      collector.place_stripe();
      const auto work = collector.take_work();
      if (stripe < stripes / 2) continue;  // until it is steady
      ++host;
      moved += work.stripes;
    }
    // Two erased blocks are kept in reserve.
    const double blocks = std::floor(kBlocks * (1 + spare / 100)) - 2;
    expect_close("write amplification, spare " + std::to_string(spare) + " %",
                 1 + static_cast<double>(moved) / static_cast<double>(host),
                 analytic_write_amplification(blocks / kBlocks), 0.05);
  }
}

TEST(GarbageCollector, SequentialWritesMoveNothing) {
  const Measurement result = measure(flash(collecting(64, "25")), {.bytes = 65536,
                                                                   .depth = 8,
                                                                   .requests = 4000,
                                                                   .write_share = 1,
                                                                   .range_bytes = 64 * kMiB,
                                                                   .sequential = true});
  EXPECT_NEAR(result.counters.write_amplification(), 1, 0.01);
  EXPECT_GT(result.counters.erases, 100u);
}

TEST(GarbageCollector, SlowsWritesByWhatItMoves) {
  // One die; 16 KiB programs of 400 us. A move senses for 40 us and programs.
  const Measurement result = measure(flash(collecting(64, "20")), {.bytes = 4096,
                                                                   .depth = 16,
                                                                   .requests = 120'000,
                                                                   .write_share = 1,
                                                                   .range_bytes = 64 * kMiB});
  const double amplification = result.counters.write_amplification();
  EXPECT_GT(amplification, 1.5);
  const double stripes = 120'032.0 / 4;
  const double seconds = (stripes * amplification * 400 + stripes * (amplification - 1) * 40 +
                          static_cast<double>(result.counters.erases) * 3500) *
                         1e-6;
  expect_close("time of writes and moves, s", result.run_seconds, seconds, 0.02);
}

TEST(GarbageCollector, AnAgedDeviceErasesSlower) {
  const auto run = [](const char* wear) {
    Overrides overrides = collecting(64, "25");
    overrides.emplace_back("wear_percent", wear);
    overrides.emplace_back("program_us", "20");
    return measure(flash(overrides), {.bytes = 65536,
                                      .depth = 8,
                                      .requests = 4000,
                                      .write_share = 1,
                                      .range_bytes = 64 * kMiB,
                                      .sequential = true});
  };
  const Measurement young = run("0");
  const Measurement aged = run("100");
  EXPECT_EQ(young.counters.erases, aged.counters.erases);
  expect_close("time of aged erases, s", aged.run_seconds - young.run_seconds,
               static_cast<double>(aged.counters.erases) * 6500e-6, 0.02);
}

// ----- heat

TEST(Thermal, HeatsAndCoolsAsTheExponentialSays) {
  const DeviceSpec spec = flash({{"thermal_rate_percent", "60"},
                                 {"thermal_c_per_gb", "0.5"},
                                 {"thermal_time_constant_s", "100"},
                                 {"thermal_throttle_c", "60"},
                                 {"thermal_resume_c", "50"}});
  flash::Thermal thermal(spec.device.arguments());
  // 2 GB/s warm by 1 C/s, against 1/100 of the difference per second: in the end 100 C above 30.
  SimTime now = 0;
  while (thermal.rate(1000) == 1000) thermal.heat(2'000'000, now += 1'000'000);
  expect_close("seconds to 60 C", static_cast<double>(now) * 1e-9, -100 * std::log(1 - 30 / 100.0),
               0.01);
  EXPECT_EQ(thermal.rate(1000), 600);
  const SimTime hot = now;
  while (thermal.rate(1000) < 1000) thermal.heat(0, now += 10'000'000);
  expect_close("seconds to 50 C", static_cast<double>(now - hot) * 1e-9, 100 * std::log(30 / 20.0),
               0.01);
}

TEST(Thermal, CutsTheRateWhileTooHot) {
  const Overrides overrides{{"link_mb_s", "1000"},        {"thermal_rate_percent", "60"},
                            {"thermal_c_per_gb", "10"},   {"thermal_time_constant_s", "1000"},
                            {"thermal_throttle_c", "60"}, {"thermal_resume_c", "50"}};
  // From 30 C at 10 C/GB: 3 GB in requests of 256 KiB.
  const auto rate = [&](std::uint64_t requests) {
    return measure(flash(overrides), {.bytes = 262144, .depth = 16, .requests = requests});
  };
  expect_close("cool, MB/s", rate(8000).mb_s, 1000, 0.01);
  const double seconds = 3e9 / 1e9 + (50'000 * 262144.0 - 3e9) / 0.6e9;
  expect_close("cool, then too hot, MB/s", rate(50'000).mb_s, 50'000 * 262144.0 / seconds * 1e-6,
               0.01);
}

// ----- all of them

TEST(Mechanisms, NothingIsFasterThanPhysics) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto coin = [&](const char* yes, const char* no) {
      return random.below(2) == 0 ? yes : no;
    };
    const Overrides overrides{{"map_cache_entries", coin("4096", "0")},
                              {"map_unit_bytes", coin("4096", "512")},
                              {"suspend_programs", coin("true", "false")},
                              {"suspend_us", "15"},
                              {"retry_percent", coin("5", "0")},
                              {"booster_bytes", coin("33554432", "0")},
                              {"gc_capacity_bytes", coin("67108864", "0")},
                              {"gc_spare_percent", "200"},
                              {"gc_block_stripes", "1"},
                              {"thermal_rate_percent", coin("70", "100")},
                              {"thermal_start_c", coin("80", "30")},
                              {"thermal_c_per_gb", "50"}};
    const DeviceSpec spec = random_spec(random, overrides);
    const Arguments& arguments = spec.device.arguments();
    const Workload workload{.bytes = std::uint64_t{4096} << random.below(7),
                            .depth = static_cast<std::uint32_t>(1 + random.below(32)),
                            .requests = 400,
                            .write_share = std::vector<double>{0, 0.4, 1}[random.below(3)],
                            .range_bytes = 1 << 30,
                            .seed = seed};
    const Measurement result = measure(spec, workload);
    const DeviceCounters& counters = result.counters;
    const double us = result.run_seconds * 1e6 * (1 + 1e-9);
    const auto bytes = [](std::uint64_t count) { return static_cast<double>(count); };
    EXPECT_LE(std::max(bytes(counters.host_read_bytes), bytes(counters.host_write_bytes)),
              us * arguments.real("link_mb_s"));
    EXPECT_LE(
        bytes(counters.flash_read_bytes + counters.map_read_bytes),
        us * arguments.real("channel_mb_s") * static_cast<double>(arguments.integer("channels")));
    EXPECT_LE(bytes(counters.read_commands + counters.write_commands) *
                  (arguments.real("command_overhead_us") - 0.0005),
              us);
    // Each byte of the host is programmed, except those that stay in the buffer.
    const double stripe =
        static_cast<double>(arguments.integer("page_bytes") * arguments.integer("planes") *
                            arguments.integer("program_pages"));
    EXPECT_GT(bytes(counters.flash_write_bytes) + stripe, bytes(counters.host_write_bytes));

    // No read is faster than on the idle device.
    if (workload.write_share > 0) continue;
    const double min_us = arguments.real("command_latency_us") +
                          arguments.real("command_overhead_us") + arguments.real("read_us") +
                          bytes(workload.bytes) / arguments.real("link_mb_s") +
                          std::min(4096.0, bytes(workload.bytes)) / arguments.real("channel_mb_s");
    OneByOne loop(spec);
    std::vector<std::uint64_t> offsets;
    const auto command_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        workload.bytes, static_cast<std::uint64_t>(arguments.integer("max_transfer_bytes"))));
    if (command_bytes < workload.bytes) continue;
    // Each place once, since a page that its die holds is not sensed again.
    for (std::uint64_t i = 0; i < 100; ++i)
      offsets.push_back(i * 10 * kMiB + random.below(10) * kMiB);
    loop.run(commands_at(offsets, command_bytes, false));
    const SimTime fastest = *std::min_element(loop.latencies.begin(), loop.latencies.end());
    EXPECT_GE(static_cast<double>(fastest) * 1e-3, min_us - 0.01);
  }
}

// ----- order of service

/// Submits all commands at once, and records when each is done.
class Together final : public EventHandler {
 public:
  Together(const DeviceSpec& spec, const std::vector<IoCommand>& commands)
      : done_at(commands.size()), device_(spec.make(simulation_)) {
    for (std::size_t i = 0; i < commands.size(); ++i) device_->submit(commands[i], *this, i);
    simulation_.run();
  }
  void on_event(std::uint64_t argument) override { done_at[argument] = simulation_.now(); }

  std::vector<SimTime> done_at;

 private:
  Simulation simulation_;
  std::unique_ptr<Device> device_;
};

/// 2 x 8 reads of 512 KiB: times (us) at which the first eight, and all of them, are done.
std::pair<double, double> two_batches(const Overrides& overrides) {
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < 16; ++i) offsets.push_back(i << 20);
  const Together burst(flash(overrides), commands_at(offsets, 512 << 10, false));
  const auto half = burst.done_at.begin() + 8;
  return {static_cast<double>(*std::max_element(burst.done_at.begin(), half)) * 1e-3,
          static_cast<double>(*std::max_element(half, burst.done_at.end())) * 1e-3};
}

TEST(ServiceOrderTest, AtRandomLargeCommandsEndTogether) {
  // Whichever is the limit: the link, the channels or the dies.
  for (const Overrides& binds :
       {Overrides{{"link_mb_s", "1000"}}, Overrides{{"channel_mb_s", "250"}},
        Overrides{{"read_us", "1000"}}}) {
    Overrides random = binds;
    random.emplace_back("service_order", "random");
    const auto [first_in_order, all_in_order] = two_batches(binds);
    const auto [first_at_random, all_at_random] = two_batches(random);
    EXPECT_NEAR(first_in_order / all_in_order, 0.5, 0.05) << binds.front().first;
    EXPECT_GT(first_at_random / all_at_random, 0.95) << binds.front().first;
    // No work is lost, but in random order a die or channel may fall idle at the end.
    EXPECT_NEAR(all_at_random / all_in_order, 1, 0.1) << binds.front().first;
  }
}

TEST(ServiceOrderTest, NothingChangesWithoutAQueue) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const Overrides shape{{"link_mb_s", std::to_string(100 + random.below(4000))},
                          {"read_us", std::to_string(random.below(100))}};
    Overrides at_random = shape;
    at_random.emplace_back("service_order", "random");
    const std::vector<IoCommand> one = commands_at({random.below(1000) * 16384}, 4096, false);
    EXPECT_EQ(Together(flash(shape), one).done_at, Together(flash(at_random), one).done_at);
  }
}

TEST(ServiceOrderTest, ASeedGivesTheSameOrder) {
  const auto times = [](const char* seed) {
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t i = 0; i < 16; ++i) offsets.push_back(i << 20);
    return Together(flash({{"service_order", "random"}, {"service_seed", seed}}),
                    commands_at(offsets, 512 << 10, false))
        .done_at;
  };
  EXPECT_EQ(times("1"), times("1"));
  EXPECT_NE(times("1"), times("2"));
}

// ----- invalid configs

TEST(MechanismConfig, MistakesAreNamed) {
  const auto expect_parts = [](const Overrides& overrides, const std::vector<std::string>& parts) {
    std::string message = "accepted";
    try {
      Simulation simulation;
      const auto device = flash(overrides).make(simulation);
    } catch (const UserError& error) {
      message = error.what();
    }
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  expect_parts({{"map_cache_entries", "100"}}, {"/map_cache_entries", "100", "1024"});
  expect_parts({{"map_unit_bytes", "3000"}}, {"/map_unit_bytes", "3000", "page_bytes = 16384"});
  expect_parts({{"map_cache_entry", "100"}}, {"did you mean 'map_cache_entries'"});
  expect_parts({{"suspend_programs", "3"}}, {"/suspend_programs", "true or false"});
  expect_parts({{"retry_percent", "101"}}, {"/retry_percent", "to 100"});
  expect_parts({{"thermal_resume_c", "80"}},
               {"/thermal_resume_c", "80", "thermal_throttle_c = 70"});
  expect_parts({{"gc_capacity_bytes", "1048576"}}, {"/gc_spare_percent", "blocks"});
  expect_parts({{"gc_capacity_bytes", "1073741824"}, {"map_unit_bytes", "65536"}},
               {"/map_unit_bytes", "65536", "divisor"});
}

}  // namespace
}  // namespace kvreplay
