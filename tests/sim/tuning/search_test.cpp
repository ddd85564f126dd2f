#include "sim/tuning/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/config_folder.hpp"
#include "sim/tuning/evaluator.hpp"
#include "sim/tuning/goal.hpp"
#include "tests/support/configs.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

using nlohmann::json;

class SearchTest : public testing::Test {
 protected:
  SearchTest() {
    write_synthetic_trace(folder_.file("a.kvtrace.h5"), {.prompt = 160, .decode = 16});
    trace_.emplace(folder_.file("a.kvtrace.h5"));
  }

  [[nodiscard]] Composition shipped(const std::string& name) const {
    json object =
        json::parse(composition_of(SystemSpec::load(kConfigs + "/systems/" + name + ".json")));
    if (object["selection"].contains("budget_tokens")) object["selection"]["budget_tokens"] = 32;
    object["stream"]["dense_layers"] = 0;
    return object.dump();
  }

  [[nodiscard]] Experiment load(const std::vector<std::string>& sets) const {
    const json members = {{"title", "test"},
                          {"trace", "a.kvtrace.h5"},
                          {"system", "quest"},
                          {"model", "smollm2-135m"},
                          {"platform", "oneplus12"},
                          {"device", {"ufs40", "emmc51"}},
                          {"batch", 1},
                          {"warm_up_steps", 2},
                          {"timed_steps", 4}};
    std::ofstream(folder_.file("test.json")) << members;
    return Experiment::load(folder_.file("test.json"), sets, ConfigFolder(kConfigs));
  }

  TemporaryFolder folder_;
  std::optional<TraceReader> trace_;
};

/// Cheap scores that depend on the composition alone.
std::vector<std::optional<Score>> toy_scores(std::span<const Composition> compositions) {
  std::vector<std::optional<Score>> scores;
  for (const Composition& composition : compositions) {
    const json object = json::parse(composition);
    const auto budget = object["selection"].value("budget_tokens", 1.0);
    const auto group = object["grouping"].value("group_tokens", 1.0);
    scores.push_back(Score{{1 / (1 + budget), budget + 100 / group, group}, 0});
  }
  return scores;
}

TEST_F(SearchTest, ShippedSystemsAreAcceptedOrRefusedByWhatTheTraceHolds) {
  const SearchSpace space(*trace_, {});
  for (const std::string name : {"quest", "clusterkv", "in_memory", "flexgen", "dynakv", "h2o"}) {
    const Composition composition = shipped(name);
    EXPECT_EQ(space.accept(composition), composition) << name;
  }
  // The synthetic trace has no adapters.
  EXPECT_THAT(user_error_of([&] { static_cast<void>(space.checked(shipped("kvswap"))); }),
              testing::HasSubstr("joint_lowrank"));
  EXPECT_FALSE(space.accept(shipped("kvswap")));
}

TEST_F(SearchTest, RefusesWhatDoesNotFitOraclesAndExcludedParts) {
  json quest = json::parse(shipped("quest"));
  quest["pipeline"] = {{"part", "layer_prefetch"}};  // needs look-ahead queries
  EXPECT_FALSE(SearchSpace(*trace_, {}).accept(quest.dump()));
  quest["stream"]["query"] = "look_ahead";
  EXPECT_TRUE(SearchSpace(*trace_, {}).accept(quest.dump()));
  EXPECT_FALSE(SearchSpace(*trace_, {.excluded = {"grouping/page"}}).accept(quest.dump()));
  quest["pipeline"]["depth"] = 2;  // look-ahead queries are known one layer ahead
  EXPECT_FALSE(SearchSpace(*trace_, {}).accept(quest.dump()));
  quest["pipeline"]["depth"] = 1;
  quest["cache"] = {{"part", "belady"}, {"capacity_groups", 8}};
  EXPECT_FALSE(SearchSpace(*trace_, {}).accept(quest.dump()));
  quest["cache"] = {{"part", "lru"}};  // no capacity
  EXPECT_FALSE(SearchSpace(*trace_, {}).accept(quest.dump()));
}

TEST_F(SearchTest, MutationsStayWithinDeclarationsAndHoldWhatIsHeld) {
  const SearchSpace space(*trace_, {.any_part = false, .held = {"selection", "stream.heads"}});
  const Composition start = shipped("clusterkv");
  const json before = json::parse(start);
  Random random(3);
  std::set<std::string> changed;
  int accepted = 0;
  for (int i = 0; i < 500; ++i) {
    const Composition mutant = space.mutate(start, 3, random);
    const json after = json::parse(mutant);
    EXPECT_EQ(after["selection"], before["selection"]);
    EXPECT_EQ(after["stream"]["heads"], before["stream"]["heads"]);
    EXPECT_EQ(after["stream"]["dense_layers"], 0);
    for (const std::string& role : SystemSpec::roles()) {
      EXPECT_EQ(after[role]["part"], before[role]["part"]);
      for (const auto& [name, value] : after[role].items()) {
        if (value != before[role][name]) changed.insert(role + "." + name);
      }
    }
    accepted += space.accept(mutant) ? 1 : 0;
  }
  // Whatever is refused is refused by parts that require more than a range; the ranges were kept.
  EXPECT_GT(accepted, 250);
  for (const char* key : {"grouping.tokens_per_cluster", "grouping.metric", "cache.steps"}) {
    EXPECT_TRUE(changed.contains(key)) << key;
  }
}

TEST_F(SearchTest, CrossingTakesEachPartFromOneParent) {
  const SearchSpace space(*trace_, {.any_part = true});
  const json first = json::parse(shipped("quest"));
  const json second = json::parse(shipped("dynakv"));
  Random random(5);
  std::set<std::string> mixes;
  for (int i = 0; i < 100; ++i) {
    const json child = json::parse(space.cross(first.dump(), second.dump(), random));
    std::string mix;
    for (const std::string& role : SystemSpec::roles()) {
      if (first[role]["part"] == second[role]["part"]) continue;
      EXPECT_TRUE(child[role] == first[role] || child[role] == second[role]) << role;
      mix += child[role] == first[role] ? 'a' : 'b';
    }
    mixes.insert(mix);
  }
  EXPECT_GT(mixes.size(), 20);
}

TEST_F(SearchTest, SameSeedSameSearchAndNothingTwice) {
  const SearchSpace space(*trace_, {.any_part = true});
  const std::vector<Composition> starts{shipped("quest"), shipped("clusterkv"),
                                        shipped("in_memory")};
  const SearchOptions options{.evaluations = 60, .population = 8, .seed = 4};
  const auto compositions = [&](const SearchOptions& how) {
    std::vector<Composition> all;
    for (const Evaluated& one : search(space, starts, how, toy_scores)) {
      all.push_back(one.composition);
    }
    return all;
  };
  const std::vector<Composition> once = compositions(options);
  EXPECT_EQ(once.size(), 63);
  EXPECT_EQ(std::set<Composition>(once.begin(), once.end()).size(), once.size());
  EXPECT_EQ(compositions(options), once);
  SearchOptions other = options;
  other.seed = 5;
  EXPECT_NE(compositions(other), once);
  // A longer search begins like a shorter one: whole generations are the same.
  other = options;
  other.evaluations = 24;
  const std::vector<Composition> shorter = compositions(other);
  EXPECT_EQ(std::vector<Composition>(once.begin(), once.begin() + 27), shorter);
}

TEST_F(SearchTest, FindsBetterThanItsStart) {
  const SearchSpace space(*trace_, {});
  const std::vector<Composition> starts{shipped("quest")};
  std::vector<Objectives> start;
  std::vector<Objectives> all;
  for (const Evaluated& one :
       search(space, starts, {.evaluations = 100, .population = 10}, toy_scores)) {
    all.push_back(one.score.objectives);
    if (one.generation == 0) start.push_back(one.score.objectives);
  }
  const Objectives reference{1, 400, 400};
  EXPECT_GT(hypervolume(all, reference), 1.1 * hypervolume(start, reference));
}

TEST_F(SearchTest, WhatAStageRefusesIsLeftOut) {
  const SearchSpace space(*trace_, {});
  const std::vector<Composition> starts{shipped("quest"), shipped("clusterkv")};
  const auto all = search(space, starts, {.evaluations = 20, .population = 5},
                          [](std::span<const Composition> compositions) {
                            auto scores = toy_scores(compositions);
                            scores.front().reset();
                            return scores;
                          });
  EXPECT_EQ(all.size(), 1 + 4 * 4);
  EXPECT_TRUE(
      search(space, starts, {.evaluations = 20}, [](std::span<const Composition> compositions) {
        return std::vector<std::optional<Score>>(compositions.size());
      }).empty());
}

TEST_F(SearchTest, EvaluationsAreThoseOfAReplayOnAnyNumberOfThreads) {
  const Experiment experiment =
      load({"device=ufs40", "system=quest,clusterkv,in_memory", "system.selection.budget_tokens=32",
            "system.stream.dense_layers=0"});
  const std::vector<CellResult> expected = replay(experiment).cells;
  for (const int threads : {1, 3}) {
    Experiment threaded = experiment;
    threaded.threads = threads;
    const Evaluator evaluator(threaded, common_cell(threaded), StageStore::none());
    const auto cells = evaluator.evaluate(threaded.systems);
    ASSERT_EQ(cells.size(), expected.size());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      ASSERT_TRUE(cells[i]);
      EXPECT_EQ(cells[i]->system, expected[i].system);
      for (const char* column : {"latency_ms", "output_error", "dram_kv_bytes", "hit_rate"}) {
        const double value = metric(expected[i], column);
        if (std::isnan(value)) continue;
        EXPECT_EQ(metric(*cells[i], column), value) << column;
      }
    }
  }
}

TEST_F(SearchTest, OneSystemThatAStageRefusesDoesNotSpoilTheOthers) {
  const Experiment experiment = load({"device=ufs40"});
  const Evaluator evaluator(experiment, common_cell(experiment), StageStore::none());
  std::vector<SystemSpec> systems;
  for (const char* name : {"quest", "kvswap", "in_memory"}) {
    systems.push_back(system_of(shipped(name), name));
  }
  const auto cells = evaluator.evaluate(systems);
  ASSERT_EQ(cells.size(), 3);
  EXPECT_TRUE(cells[0]);
  EXPECT_FALSE(cells[1]);  // it has no adapter
  EXPECT_TRUE(cells[2]);
}

TEST_F(SearchTest, ACommonCellIsOne) {
  EXPECT_THAT(user_error_of([&] { static_cast<void>(common_cell(load({}))); }),
              testing::HasSubstr("--set device=ufs40"));
}

TEST_F(SearchTest, LimitsAreMissedByShares) {
  CellResult cell;
  cell.timing.batch = 1;
  cell.timing.steps = {{.latency_ns = 20'000'000, .compute_ns = 20'000'000}};
  cell.timing.dram.cache_bytes = 3000;
  cell.quality.attention_mass = 0.8;
  cell.quality.output_error = 0.1;
  Goal goal;
  EXPECT_EQ(goal.objectives(cell), (Objectives{0.1, 20, 3000}));
  EXPECT_TRUE(goal.score(cell).feasible());
  goal.max_dram_bytes = 2000;
  goal.max_latency_ms = 25;
  EXPECT_DOUBLE_EQ(goal.score(cell).violation, 0.5);
  goal.max_latency_ms = 10;
  EXPECT_DOUBLE_EQ(goal.score(cell).violation, 1.5);
  goal = {};
  goal.quality = "attention_mass";
  goal.min_attention_mass = 0.8;
  EXPECT_NEAR(goal.objectives(cell)[0], 0.2, 1e-12);
  EXPECT_TRUE(goal.score(cell).feasible());
  goal.min_attention_mass = 0.9;
  EXPECT_FALSE(goal.score(cell).feasible());
  EXPECT_NEAR(goal.reference({{0.5, 7, 1000}})[0], 0.1, 1e-12);
  EXPECT_EQ(goal.reference({{0.5, 7, 1000}, {0.1, 9, 10}})[1], 9);
}

}  // namespace
}  // namespace kvreplay
