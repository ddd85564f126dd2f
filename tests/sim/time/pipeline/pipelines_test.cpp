// A pipeline sees only the machine's interface: here it drives one that has no clock, no device and
// no event queue, and records what is requested.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/time/pipeline/pipeline.hpp"

namespace kvreplay {
namespace {

using testing::ElementsAre;

/// Everything is over when it is requested, as on a machine that computes and reads at once; or
/// nothing is over until go_on().
class FakeMachine final : public Machine {
 public:
  FakeMachine(std::size_t layers, bool blocks) : layers_(layers), operation_(blocks) {}

  [[nodiscard]] std::size_t layers() const override { return layers_; }
  Wait compute(Kernels kernels, std::size_t layer) override {
    std::string name;
    for (const auto& [kernel, letter] :
         {std::pair(Kernels::kProjectQuery, 'Q'), std::pair(Kernels::kProjectKeyValue, 'K'),
          std::pair(Kernels::kScore, 'S'), std::pair(Kernels::kAttend, 'A'),
          std::pair(Kernels::kHead, 'H')}) {
      if (contains(kernels, kernel)) name += letter;
    }
    calls.push_back(layer == kNoLayer ? name : name + std::to_string(layer));
    return Wait(operation_);
  }
  void start(TransferKind kind, std::size_t layer) override {
    calls.push_back("start " + name_of(kind) + std::to_string(layer));
  }
  Wait wait(TransferKind kind, std::size_t layer) override {
    calls.push_back("wait " + name_of(kind) + std::to_string(layer));
    return Wait(operation_);
  }

  /// What the step waits for is over.
  void go_on() { std::exchange(operation_.waiter, nullptr)->resume(); }

  std::vector<std::string> calls;

 private:
  struct Operation final : Waitable {
    explicit Operation(bool at_once) : over(at_once) {}
    [[nodiscard]] bool is_over() override { return over; }
    void resume_when_over(WaitingStep& step) override { waiter = &step; }
    bool over;
    WaitingStep* waiter = nullptr;
  };

  static std::string name_of(TransferKind kind) {
    return std::vector<std::string>{"r", "w", "index", "cache"}[static_cast<std::size_t>(kind)];
  }

  std::size_t layers_;
  Operation operation_;
};

std::vector<std::string> calls_of(const std::string& pipeline, std::size_t layers) {
  const std::unique_ptr<Pipeline> made =
      PartConfig<Pipeline>::parse(ConfigNode::parse(pipeline, "test.json")).make({});
  FakeMachine blocking(layers, true);
  StepTask at_once = made->step(blocking);
  EXPECT_TRUE(blocking.calls.empty()) << "a step begins when it is started";
  at_once.start();
  EXPECT_TRUE(at_once.done());

  // The same where each wait takes time; meanwhile nothing is requested.
  FakeMachine waiting(layers, false);
  StepTask step = made->step(waiting);
  step.start();
  while (!step.done()) waiting.go_on();
  EXPECT_EQ(waiting.calls, blocking.calls);
  return blocking.calls;
}

TEST(Pipelines, SerialWaitsForEveryRead) {
  EXPECT_THAT(calls_of(R"({"part": "serial"})", 2),
              ElementsAre("QKS0", "start r0", "wait r0", "A0", "wait w0", "start w0",  //
                          "QKS1", "start r1", "wait r1", "A1", "wait w1", "start w1", "H"));
}

TEST(Pipelines, LayerPrefetchStartsTheNextLayersReadsFirst) {
  EXPECT_THAT(
      calls_of(R"({"part": "layer_prefetch"})", 3),
      ElementsAre("S0", "start r0", "S1", "start r1", "QK0", "wait r0", "A0", "wait w0", "start w0",
                  "S2", "start r2", "QK1", "wait r1", "A1", "wait w1", "start w1",  //
                  "QK2", "wait r2", "A2", "wait w2", "start w2", "H"));
}

TEST(Pipelines, LayerPrefetchKnowsNoMoreThanItsDepthAndTheModelsLayers) {
  EXPECT_THAT(calls_of(R"({"part": "layer_prefetch", "depth": 9})", 2),
              ElementsAre("S0", "start r0", "S1", "start r1", "QK0", "wait r0", "A0", "wait w0",
                          "start w0", "QK1", "wait r1", "A1", "wait w1", "start w1", "H"));
}

TEST(Pipelines, TwoStageReadsUnderProjectionsAndUnderAttention) {
  EXPECT_THAT(
      calls_of(R"({"part": "two_stage"})", 2),
      ElementsAre("start cache0", "start index0", "Q0", "wait index0", "S0", "start r0", "K0",
                  "wait cache0", "wait r0", "start cache1", "A0", "wait w0", "start w0",  //
                  "start index1", "Q1", "wait index1", "S1", "start r1", "K1", "wait cache1",
                  "wait r1", "A1", "wait w1", "start w1", "H"));
}

TEST(Pipelines, WhatEscapesFromAStepIsKeptForItsMachine) {
  const auto fails = [](Machine& machine) -> StepTask {
    co_await machine.compute(Kernels::kScore, 0);
    throw std::runtime_error("no such kernel");
  };
  FakeMachine machine(1, false);
  StepTask step = fails(machine);
  step.start();
  EXPECT_FALSE(step.done());
  machine.go_on();
  ASSERT_TRUE(step.done());
  EXPECT_THROW(step.rethrow(), std::runtime_error);
}

}  // namespace
}  // namespace kvreplay
