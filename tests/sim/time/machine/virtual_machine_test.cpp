#include "sim/time/machine/virtual_machine.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace kvreplay {
namespace {

/// Every command takes as many nanoseconds as it has bytes, all at the same time.
class ByteDevice final : public Device {
 public:
  explicit ByteDevice(Simulation& simulation) : simulation_(simulation) {}
  void submit(const IoCommand& command, EventHandler& done, std::uint64_t argument) override {
    simulation_.schedule(simulation_.now() + command.bytes, done, argument);
  }
  [[nodiscard]] DeviceLimits limits() const override { return {}; }
  [[nodiscard]] DeviceCounters counters() const override { return {}; }

 private:
  Simulation& simulation_;
};

/// Two layers: 1, 20, 300 and 4000 ns of kernels, and a head of 50000; layer 1 takes as long.
class VirtualMachineTest : public testing::Test {
 public:
  VirtualMachineTest() {
    for (LayerWork& layer : work_.layers) {
      layer.project_query_ns = 1;
      layer.project_key_value_ns = 20;
      layer.score_ns = 300;
      layer.attend_ns = 4000;
      layer.commands(TransferKind::kReads) = {{0, 100, false}, {512, 700, false}};
      layer.commands(TransferKind::kWrites) = {{1024, 9000, true}};
    }
  }

  using Step = StepTask (*)(VirtualMachineTest&);
  /// When each of the steps ended.
  std::vector<SimTime> run(const std::vector<Step>& steps) {
    std::vector<SimTime> ends;
    const Process process = all(*this, steps, ends);
    simulation_.spawn(process);
    simulation_.run();
    EXPECT_TRUE(process.done());
    return ends;
  }
  static Process all(VirtualMachineTest& test, const std::vector<Step>& steps,
                     std::vector<SimTime>& ends) {
    for (const Step step : steps) {
      co_await test.machine_.run(step(test));
      ends.push_back(test.simulation_.now());
    }
  }
  void see() { seen_.push_back(simulation_.now()); }

  StepWork work_{.layers = std::vector<LayerWork>(2), .head_ns = 50000};
  Simulation simulation_;
  ByteDevice device_{simulation_};
  VirtualMachine machine_{simulation_, device_, work_};
  std::vector<SimTime> seen_;
};

TEST_F(VirtualMachineTest, KernelsTakeAsLongAsTheStepSays) {
  const auto step = [](VirtualMachineTest& test) -> StepTask {
    using enum Kernels;
    VirtualMachineTest& t = test;
    co_await t.machine_.compute(kProject | kScore, 0);
    t.see();
    co_await t.machine_.compute(kProjectKeyValue, 1);
    t.see();
    co_await t.machine_.compute(kAttend, 1);
    t.see();
    co_await t.machine_.compute_head();
  };
  EXPECT_EQ(run({step}), (std::vector<SimTime>{321 + 20 + 4000 + 50000}));
  EXPECT_EQ(seen_, (std::vector<SimTime>{321, 341, 4341}));
  EXPECT_EQ(machine_.computed_ns(), 54341);
  EXPECT_EQ(machine_.io_busy_ns(), 0);
}

TEST_F(VirtualMachineTest, TransfersRunBesideKernelsAndOutliveTheStep) {
  const auto step = [](VirtualMachineTest& test) -> StepTask {
    using enum TransferKind;
    Machine& machine = test.machine_;
    co_await machine.wait(kWrites, 0);
    machine.start(kReads, 0);
    machine.start(kReads, 1);
    machine.start(kWrites, 0);
    machine.start(kIndexReads, 0);  // of no command: it is over
    co_await machine.wait(kIndexReads, 0);
    co_await machine.compute(Kernels::kScore, 0);
    test.see();
    co_await machine.wait(kReads, 0);
    co_await machine.wait(kReads, 1);
    test.see();
    co_await machine.wait(kReads, 1);
    test.see();
  };
  EXPECT_EQ(run({step, step}), (std::vector<SimTime>{700, 9700}));
  EXPECT_EQ(seen_, (std::vector<SimTime>{300, 700, 700, 9300, 9700, 9700}));
  EXPECT_EQ(machine_.commands_started(), 2 * 5);
  EXPECT_EQ(machine_.io_busy_ns(), 18000) << "until the last write";
}

TEST_F(VirtualMachineTest, HandingOverCommandsTakesTheProcessorsTime) {
  work_.layers[0].submit_ns[static_cast<std::size_t>(TransferKind::kReads)] = 60;
  work_.submit_first_ns = 20;
  const auto step = [](VirtualMachineTest& test) -> StepTask {
    Machine& machine = test.machine_;
    machine.start(TransferKind::kReads, 0);
    co_await machine.compute(Kernels::kScore, 0);
    test.see();
    co_await machine.wait(TransferKind::kReads, 0);
  };
  // The second of two commands, of 700 ns, is handed over 40 ns after the first, which begins at
  // once.
  EXPECT_EQ(run({step, step}), (std::vector<SimTime>{740, 1480}));
  EXPECT_EQ(seen_, (std::vector<SimTime>{360, 1100}));
  EXPECT_EQ(machine_.computed_ns(), 720);
  EXPECT_EQ(machine_.io_busy_ns(), 1480);
  EXPECT_EQ(machine_.command_ns(false), (std::vector<SimTime>{100, 740, 100, 740}));
  EXPECT_EQ(work_.compute_ns(), 50000 + 2 * 4321 + 60);
}

TEST_F(VirtualMachineTest, TransfersAfterAPauseAndBesideKernelsTakeLonger) {
  MeasuredKernels measured;
  measured.wake.parts["transfer"] = MeasuredKernel({{.work = 1, .us = 1}, {.work = 4, .us = 4}});
  measured.wake.parts["command"] =
      MeasuredKernel({{.work = 1, .us = 0.01}, {.work = 2, .us = 0.01}});
  measured.beside.parts["transfer"] =
      MeasuredKernel({{.work = 1, .us = 0.4}, {.work = 2, .us = 0.4}});
  work_.measured = &measured;
  const auto step = [](VirtualMachineTest& test) -> StepTask {
    using enum TransferKind;
    Machine& machine = test.machine_;
    co_await machine.compute(Kernels::kAttend, 0);
    machine.start(kReads, 0);   // after 4 us: two commands, 4.02 us later
    machine.start(kWrites, 0);  // not after a pause
    co_await machine.wait(kReads, 0);
    test.see();
    co_await machine.wait(kWrites, 0);
    const Wait score = machine.compute(Kernels::kScore, 0);
    machine.start(kReads, 1);  // beside a kernel, but after no pause
    co_await machine.wait(kReads, 1);
    test.see();
    co_await score;
  };
  EXPECT_EQ(run({step}), (std::vector<SimTime>{13000 + 400 + 300 + 700}));
  EXPECT_EQ(seen_, (std::vector<SimTime>{8020 + 700, 14400}));
  EXPECT_EQ(machine_.io_busy_ns(), 9000 + 1400);
  EXPECT_EQ(machine_.computed_ns(), 4300) << "the processor has no part in it";
}

TEST_F(VirtualMachineTest, ComputationsBesideTransfersAreHandedOver) {
  MeasuredKernels measured;
  measured.hand_over.any = MeasuredKernel({{.work = 0.1, .us = 0.1}, {.work = 1, .us = 1}});
  work_.measured = &measured;
  const auto step = [](VirtualMachineTest& test) -> StepTask {
    Machine& machine = test.machine_;
    co_await machine.compute(Kernels::kScore, 0);  // alone
    test.see();
    machine.start(TransferKind::kReads, 0);        // until 1000
    co_await machine.compute(Kernels::kScore, 0);  // 0.3 us after the beginning: 0.3 us longer
    test.see();
    co_await machine.compute(Kernels::kScore, 0);  // at once after it: 0.1 us longer
    test.see();
    co_await machine.wait(TransferKind::kReads, 0);
    co_await machine.compute(Kernels::kScore, 0);  // alone
    test.see();
  };
  EXPECT_EQ(run({step}), (std::vector<SimTime>{1600}));
  EXPECT_EQ(seen_, (std::vector<SimTime>{300, 900, 1300, 1600}));
  EXPECT_EQ(machine_.computed_ns(), 1600);
}

TEST_F(VirtualMachineTest, ComputesInTheOrderInWhichItWasAsked) {
  const auto step = [](VirtualMachineTest& test) -> StepTask {
    const Wait first = test.machine_.compute(Kernels::kScore, 0);
    const Wait second = test.machine_.compute(Kernels::kAttend, 0);
    co_await first;  // one processor: over when it has nothing left
    co_await second;
  };
  EXPECT_EQ(run({step}), (std::vector<SimTime>{4300}));
}

TEST_F(VirtualMachineTest, ATransferUnderWayIsNotStartedAgain) {
  const auto step = [](VirtualMachineTest& test) -> StepTask {
    test.machine_.start(TransferKind::kReads, 0);
    co_await test.machine_.compute(Kernels::kScore, 0);
    test.machine_.start(TransferKind::kReads, 0);
  };
  EXPECT_THROW(run({step}), std::logic_error);
}

TEST_F(VirtualMachineTest, WhatEscapesFromAStepComesOutOfTheSimulation) {
  const auto at_once = [](VirtualMachineTest&) -> StepTask {
    throw std::runtime_error("at once");
    co_return;
  };
  EXPECT_THROW(run({at_once}), std::runtime_error);
  const auto later = [](VirtualMachineTest& test) -> StepTask {
    co_await test.machine_.compute(Kernels::kScore, 0);
    throw std::runtime_error("later");
  };
  EXPECT_THROW(run({later}), std::runtime_error);
}

TEST_F(VirtualMachineTest, TwoStepsAtATimeAreRefused) {
  const auto step = [](VirtualMachineTest& test) -> StepTask {
    co_await test.machine_.compute(Kernels::kScore, 0);
  };
  simulation_.spawn(machine_.run(step(*this)));
  simulation_.spawn(machine_.run(step(*this)));
  EXPECT_THROW(simulation_.run(), std::logic_error);
}

}  // namespace
}  // namespace kvreplay
