#include "devices/io_batch.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "base/engine/server.hpp"
#include "tests/devices/flash/flash_spec.hpp"

namespace kvreplay {
namespace {

std::vector<IoCommand> commands(std::uint32_t count, bool write) {
  std::vector<IoCommand> all;
  for (std::uint32_t i = 0; i < count; ++i) all.push_back({std::uint64_t{i} * 65536, 4096, write});
  return all;
}

Process run_batch(Simulation& simulation, Device& device, const std::vector<IoCommand>& batch,
                  SimTime start, IoTimes& times) {
  co_await delay(simulation, start);
  times = co_await IoBatch(simulation, device, batch);
  EXPECT_EQ(simulation.now(), times.completed);
}

TEST(IoBatch, ResumesWhenTheLastCommandIsDone) {
  Simulation simulation;
  const auto device = test::flash().make(simulation);
  IoTimes one;
  IoTimes many;
  const std::vector<IoCommand> single = commands(1, false);
  const std::vector<IoCommand> batch = commands(100, false);
  simulation.spawn(run_batch(simulation, *device, single, 1'000, one));
  simulation.spawn(run_batch(simulation, *device, batch, 1'000'000, many));
  simulation.run();
  EXPECT_EQ(one.submitted, 1'000);
  EXPECT_EQ(one.elapsed(), 22'000 + 40'000 + 5'120 + 1'024);
  EXPECT_EQ(many.submitted, 1'000'000);
  EXPECT_GT(many.elapsed(), one.elapsed());
  EXPECT_EQ(simulation.now(), many.completed);
  EXPECT_EQ(device->counters().read_commands, 101u);
}

TEST(IoBatch, AnEmptyOneTakesNoTime) {
  Simulation simulation;
  const auto device = test::flash().make(simulation);
  IoTimes times{1, 2};
  const std::vector<IoCommand> none;
  simulation.spawn(run_batch(simulation, *device, none, 500, times));
  simulation.run();
  EXPECT_EQ(times.submitted, 500);
  EXPECT_EQ(times.completed, 500);
}

TEST(IoBatch, ReadsAndWritesShareADevice) {
  const auto read_time = [](bool with_writes) {
    Simulation simulation;
    // Programs of 5 ms keep the dies from the reads.
    const auto device = test::flash({{"program_us", "5000"}}).make(simulation);
    IoTimes reads;
    IoTimes writes;
    const std::vector<IoCommand> read_batch = commands(64, false);
    const std::vector<IoCommand> write_batch = commands(64, true);
    simulation.spawn(run_batch(simulation, *device, read_batch, 300'000, reads));
    if (with_writes) simulation.spawn(run_batch(simulation, *device, write_batch, 0, writes));
    simulation.run();
    EXPECT_EQ(device->counters().read_commands, 64u);
    EXPECT_EQ(device->counters().write_commands, with_writes ? 64u : 0u);
    return reads.elapsed();
  };
  EXPECT_GT(read_time(true), read_time(false) + 4'000'000);
}

Process overlapped_step(Simulation& simulation, Server& cpu, Device& device,
                        const std::vector<IoCommand>& batch, SimTime& end) {
  IoTimes times;
  const Process reading = run_batch(simulation, device, batch, 0, times);
  simulation.spawn(reading);
  co_await cpu.use(50'000);
  co_await reading;
  end = simulation.now();
}

TEST(IoBatch, OverlapsWithCompute) {
  Simulation simulation;
  Server cpu(simulation);
  const auto device = test::flash().make(simulation);
  SimTime end = 0;
  const std::vector<IoCommand> batch = commands(1, false);
  simulation.spawn(overlapped_step(simulation, cpu, *device, batch, end));
  simulation.run();
  EXPECT_EQ(end, 68'144) << "the read outlasts the 50 us of compute";
}

Process fail_after_batch(Simulation& simulation, Device& device,
                         const std::vector<IoCommand>& batch) {
  co_await IoBatch(simulation, device, batch);
  throw std::runtime_error("after the batch");
}

// A process that fails leaves others in the middle of their I/O; nothing leaks, and nothing of the
// device is touched when the simulation, which outlives it, ends them.
TEST(IoBatch, MayBeCutShort) {
  Simulation simulation;
  const auto device = test::flash().make(simulation);
  const std::vector<IoCommand> short_batch = commands(1, false);
  const std::vector<IoCommand> long_batch = commands(500, true);
  IoTimes times{-1, -1};
  simulation.spawn(fail_after_batch(simulation, *device, short_batch));
  simulation.spawn(run_batch(simulation, *device, long_batch, 0, times));
  EXPECT_THROW(simulation.run(), std::runtime_error);
  EXPECT_EQ(times.completed, -1);
}

}  // namespace
}  // namespace kvreplay
