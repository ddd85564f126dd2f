#include "sim/replay/stage_graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/replay/stage_keys.hpp"
#include "sim/replay/stage_outputs.hpp"
#include "sim/replay/stage_store.hpp"
#include "sim/time/timing_bytes.hpp"
#include "tests/sim/sim_specs.hpp"
#include "tests/support/configs.hpp"

namespace kvreplay {
namespace {

using testing::ElementsAre;

SystemSpec quest(const std::string& name, const std::string& path = "",
                 const std::string& value = "") {
  const ConfigNode node = ConfigNode::load(kConfigs + "/systems/quest.json");
  return SystemSpec::parse(path.empty() ? node : node.with(path, value), name);
}

/// One trace, model and platform, and two devices. The systems differ from the first one in the
/// cache, in the budget, or only in the name.
Experiment experiment_of(const std::vector<Cell>& cells) {
  Experiment experiment;
  experiment.traces = {"a.kvtrace.h5"};
  experiment.systems = {quest("plain"), quest("cached", "cache.steps", "3"),
                        quest("scored", "selection.budget_tokens", "77"), quest("same")};
  experiment.models = {tiny_model()};
  experiment.platforms = {tiny_platform()};
  experiment.devices = {DeviceSpec::load(kConfigs + "/devices/ufs40.json"),
                        DeviceSpec::load(kConfigs + "/devices/emmc51.json")};
  experiment.cells = cells;
  return experiment;
}

Cell cell_of(std::size_t system, std::size_t device = 0) {
  Cell cell;
  cell.system = system;
  cell.device = device;
  return cell;
}

StageGraph graph_of(const Experiment& experiment, const Shard& shard = {}) {
  const std::vector<TraceIdentity> traces{{.sha256 = "trace", .decode_steps = 16}};
  return {experiment, traces, false, shard};
}

TEST(StageGraph, CellsShareWhatDoesNotDependOnWhereTheyDiffer) {
  const Experiment experiment =
      experiment_of({cell_of(0), cell_of(0, 1), cell_of(1), cell_of(2), cell_of(3)});
  const StageGraph graph = graph_of(experiment);
  ASSERT_EQ(graph.decisions().size(), 2U);
  ASSERT_EQ(graph.placements().size(), 3U);
  ASSERT_EQ(graph.timings().size(), 4U);
  // Another device shares all but the timing. Another cache shares the decision.
  EXPECT_EQ(graph.placement_of(1), graph.placement_of(0));
  EXPECT_NE(graph.timing_of(1), graph.timing_of(0));
  EXPECT_EQ(graph.decision_of(2), graph.decision_of(0));
  EXPECT_NE(graph.placement_of(2), graph.placement_of(0));
  EXPECT_NE(graph.decision_of(3), graph.decision_of(0));
  // Another name shares everything.
  EXPECT_EQ(graph.timing_of(4), graph.timing_of(0));
  EXPECT_THAT(graph.timings()[graph.timing_of(0)].cells, ElementsAre(0, 4));
  EXPECT_THAT(graph.decisions()[0].systems, ElementsAre("cached", "plain", "same"));
}

TEST(StageGraph, EdgesGoBothWays) {
  const Experiment experiment = experiment_of({cell_of(0), cell_of(0, 1), cell_of(1), cell_of(2)});
  const StageGraph graph = graph_of(experiment);
  EXPECT_THAT(graph.decisions()[0].placements, ElementsAre(0, 1));
  EXPECT_THAT(graph.placements()[0].timings, ElementsAre(0, 1));
  for (std::size_t i = 0; i < graph.decisions().size(); ++i) {
    for (const std::size_t placement : graph.decisions()[i].placements) {
      EXPECT_EQ(graph.placements()[placement].decision, i);
    }
  }
  for (std::size_t i = 0; i < graph.placements().size(); ++i) {
    for (const std::size_t timing : graph.placements()[i].timings) {
      EXPECT_EQ(graph.timings()[timing].placement, i);
    }
  }
}

TEST(StageGraph, StepsAreThoseThatAreReplayed) {
  Cell all = cell_of(0);
  Cell some = cell_of(0);
  some.steps = 5;
  Cell too_many = cell_of(0);
  too_many.steps = 99;
  const Experiment experiment = experiment_of({all, some, too_many});
  const StageGraph graph = graph_of(experiment);
  ASSERT_EQ(graph.decisions().size(), 2U);
  EXPECT_EQ(graph.decisions()[0].steps, 16);
  EXPECT_EQ(graph.decisions()[1].steps, 5);
  EXPECT_EQ(graph.decision_of(2), graph.decision_of(0));
}

TEST(StageGraph, AShardHasWhatItsCellsNeed) {
  // In the order of the cells, decisions alternate. A shard takes the cells of one decision.
  const Experiment experiment =
      experiment_of({cell_of(0), cell_of(2), cell_of(0, 1), cell_of(2, 1)});
  const StageGraph graph = graph_of(experiment, {.index = 2, .count = 2});
  EXPECT_THAT(graph.cells(), ElementsAre(1, 3));
  EXPECT_TRUE(graph.in_shard(3));
  EXPECT_FALSE(graph.in_shard(2));
  EXPECT_FALSE(graph.decisions()[graph.decision_of(0)].in_shard);
  EXPECT_FALSE(graph.timings()[graph.timing_of(2)].in_shard);
  EXPECT_TRUE(graph.decisions()[graph.decision_of(1)].in_shard);
  EXPECT_TRUE(graph.placements()[graph.placement_of(1)].in_shard);
  EXPECT_TRUE(graph.timings()[graph.timing_of(3)].in_shard);
}

// --- What is known of its outputs ---

/// Finds texts, and stores nothing.
class FilledStore final : public StageStore {
 public:
  std::map<std::pair<std::string, std::string>, std::string> outputs;

  [[nodiscard]] std::optional<std::string> find(const std::string& of_kind,
                                                const std::string& key) override {
    if (!outputs.contains({of_kind, key})) return std::nullopt;
    return "file";
  }
  [[nodiscard]] std::optional<std::string> read(const std::string& of_kind,
                                                const std::string& key) override {
    const auto found = outputs.find({of_kind, key});
    if (found == outputs.end()) return std::nullopt;
    return found->second;
  }
  void put(const std::string&, const std::string&, std::string_view) override {}
  void put_file(const std::string&, const std::string&,
                const std::function<void(const std::string&)>&) override {}
  [[nodiscard]] std::string problem() const override { return ""; }
  [[nodiscard]] std::unique_ptr<Lock> lock(std::span<const std::string>) const override {
    return std::make_unique<Lock>();
  }
};

class StageOutputsTest : public testing::Test {
 protected:
  void store_timing(std::size_t number) {
    store_.outputs[{kind::kTiming, graph_.timings()[number].key}] = to_bytes(Timing{});
  }
  void store_means() {
    store_.outputs[{kind::kMeans, graph_.decisions()[0].key}] =
        to_bytes(std::vector<LayerMeans>(1));
  }
  [[nodiscard]] StageOutputs outputs(const OutputRequests& requests = {}) {
    return {graph_, store_, requests};
  }

  // One decision, one plan, two timings.
  const Experiment experiment_ = experiment_of({cell_of(0), cell_of(0, 1)});
  const StageGraph graph_ = graph_of(experiment_);
  FilledStore store_;
};

TEST_F(StageOutputsTest, WithoutAStoreAllMustBeComputed) {
  const StageOutputs outputs(graph_, StageStore::none(), {});
  EXPECT_TRUE(outputs.decisions[0].must_compute);
  EXPECT_TRUE(outputs.placements[0].must_compute);
  EXPECT_THAT(outputs.missing_timings(0), ElementsAre(0, 1));
}

TEST_F(StageOutputsTest, AnOutputIsNeededOnlyByThoseThatAreNotKnown) {
  store_timing(0);
  EXPECT_THAT(outputs().missing_timings(0), ElementsAre(1));
  EXPECT_TRUE(outputs().placements[0].must_compute);
  store_timing(1);
  EXPECT_FALSE(outputs().placements[0].must_compute);
  EXPECT_TRUE(outputs().decisions[0].must_compute) << "for the means";
  store_means();
  EXPECT_FALSE(outputs().decisions[0].must_compute);
  EXPECT_EQ(outputs().decisions[0].means.size(), 1U);
}

TEST_F(StageOutputsTest, AStoredPlanSparesTheLog) {
  store_means();
  EXPECT_TRUE(outputs().decisions[0].must_compute);
  store_.outputs[{kind::kPlan, graph_.placements()[0].key}] = "";
  EXPECT_FALSE(outputs().placements[0].must_compute);
  EXPECT_FALSE(outputs().decisions[0].must_compute);
  EXPECT_TRUE(outputs().lacks_timings(0));
}

TEST_F(StageOutputsTest, WhatIsToBeSeenIsComputedThoughStored) {
  store_timing(0);
  store_timing(1);
  store_means();
  EXPECT_FALSE(outputs().lacks_timings(0));
  EXPECT_THAT(outputs({.schedule = true}).missing_timings(0), ElementsAre(0, 1));
  const StageOutputs shown = outputs({.timeline_steps = 2, .timeline_cells = 1});
  EXPECT_THAT(shown.missing_timings(0), ElementsAre(0));
  EXPECT_EQ(shown.shown_cells(), 1U);
  EXPECT_TRUE(outputs({.access_logs = true}).decisions[0].must_compute);
}

}  // namespace
}  // namespace kvreplay
