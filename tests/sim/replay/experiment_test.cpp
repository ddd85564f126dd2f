#include "sim/replay/experiment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/configs.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class ExperimentTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    write_synthetic_trace(folder_->file("a.kvtrace.h5"));
    write_synthetic_trace(folder_->file("b.kvtrace.h5"));
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static json sound() {
    return {{"title", "test"},        {"trace", "a.kvtrace.h5"}, {"system", {"quest", "kvswap"}},
            {"model", "llama3.1-8b"}, {"platform", "orin_agx"},  {"device", {"emmc51", "ufs40"}},
            {"batch", {1, 4}},        {"warm_up_steps", 0}};
  }
  static Experiment load(const json& members, const std::vector<std::string>& sets = {}) {
    std::ofstream(folder_->file("test.json")) << members;
    return Experiment::load(folder_->file("test.json"), sets, ConfigFolder(kConfigs));
  }
  static std::string error_of(const json& members, const std::vector<std::string>& sets = {}) {
    return user_error_of([&] { static_cast<void>(load(members, sets)); });
  }
  static std::string error_of_set(const std::string& set) { return error_of(sound(), {set}); }

  static TemporaryFolder* folder_;
};
TemporaryFolder* ExperimentTest::folder_ = nullptr;

std::int64_t argument_of(const SystemSpec& system, const std::string& role,
                         const std::string& name) {
  for (const SystemSpec::Member& member : system.members()) {
    if (member.role == role) return member.arguments->integer(name);
  }
  ADD_FAILURE() << "no role " << role;
  return -1;
}

std::set<std::int64_t> batches_of(const Experiment& experiment) {
  std::set<std::int64_t> batches;
  for (const Cell& cell : experiment.cells) batches.insert(cell.batch);
  return batches;
}

/// Each cell's system and swept settings, as "kvswap 7 lru"; "-" for none.
std::vector<std::string> rows_of(const Experiment& experiment) {
  std::vector<std::string> rows;
  for (const Cell& cell : experiment.cells) {
    std::string& row = rows.emplace_back(experiment.systems[cell.system].name);
    for (const std::optional<Value>& value : cell.settings) {
      row += " " + (value ? to_text(*value) : "-");
    }
  }
  return rows;
}

/// Calls visit(path, number) for every number that is not the "value" of an object with a source.
template <typename Visit>
void for_bare_numbers(const json& node, const std::string& path, Visit&& visit) {
  if (node.is_object() && node.contains("value")) {
    if (!node.contains("source") || node["source"].get<std::string>().empty()) visit(path);
    return;
  }
  if (node.is_number()) visit(path);
  if (node.is_object()) {
    for (const auto& member : node.items()) {
      for_bare_numbers(member.value(), path + "/" + member.key(), visit);
    }
  }
}

TEST(Configs, EveryOneLoadsAndNamesASourceForEveryNumber) {
  const ConfigFolder configs(kConfigs);
  for (const char* kind : {"systems", "models", "platforms", "devices"}) {
    const std::vector<std::string> names = configs.names(kind);
    EXPECT_FALSE(names.empty()) << kind;
    for (const std::string& name : names) {
      const std::string file = configs.file(kind, name, {});
      std::ifstream stream(file);
      for_bare_numbers(json::parse(stream, nullptr, true, true), "", [&](const std::string& path) {
        ADD_FAILURE() << file << path << " has no source";
      });
    }
  }
  for (const std::string& name : configs.names("systems")) {
    const SystemSpec system = SystemSpec::load(configs.file("systems", name, {}));
    EXPECT_EQ(system.name, name);
    EXPECT_FALSE(system.title.empty());
    EXPECT_FALSE(system.source.empty());
  }
  for (const std::string& name : configs.names("models")) {
    const ModelSpec model = ModelSpec::load(configs.file("models", name, {}));
    EXPECT_EQ(model.layers * model.head_dim > 0, true) << name;
  }
  for (const std::string& name : configs.names("platforms")) {
    EXPECT_GT(PlatformSpec::load(configs.file("platforms", name, {})).flops_s, 0);
  }
}

TEST(Configs, EveryExperimentLoads) {
  const ConfigFolder configs(kConfigs);
  for (const std::string& name : configs.names("experiments")) {
    const Experiment experiment =
        Experiment::load(configs.file("experiments", name, {}), {}, configs);
    EXPECT_FALSE(experiment.systems.empty());
  }
}

TEST_F(ExperimentTest, ReadsListsAndDefaults) {
  const Experiment experiment = load(sound());
  EXPECT_EQ(experiment.name, "test");
  EXPECT_EQ(experiment.traces.size(), 1U);
  EXPECT_EQ(trace_name(experiment.traces.front()), "a");
  EXPECT_EQ(experiment.systems.size(), 2U);
  EXPECT_EQ(experiment.devices[1].name, "ufs40");
  EXPECT_THAT(batches_of(experiment), testing::ElementsAre(1, 4));
  EXPECT_EQ(experiment.cells.size(), 2U * 2 * 2);
  EXPECT_EQ(experiment.cells.front().seed, 1U);
  EXPECT_TRUE(experiment.swept.empty());
}

TEST_F(ExperimentTest, SettingsReplaceMembers) {
  const std::vector<std::string> sets{
      "device=nvme_jetson", "batch=2,3", "seed=9",
      "trace=" + folder_->file("a.kvtrace.h5") + "," + folder_->file("b.kvtrace.h5")};
  const Experiment experiment = load(sound(), sets);
  ASSERT_EQ(experiment.devices.size(), 1U);
  EXPECT_EQ(experiment.devices.front().name, "nvme_jetson");
  EXPECT_THAT(batches_of(experiment), testing::ElementsAre(2, 3));
  EXPECT_EQ(experiment.cells.front().seed, 9U);
  EXPECT_EQ(experiment.traces.size(), 2U);
}

TEST_F(ExperimentTest, SettingsReachThePartsThatHaveThem) {
  const std::vector<std::string> sets{
      "system.selection.budget_tokens=77",  "system.cache.capacity_groups=9",
      "system.kvswap.stream.sink_tokens=3", "model.weight_bits=4",
      "platform.dram_bandwidth_gb_s=100",   "device.ufs40.queue_depth=8"};
  const Experiment experiment = load(sound(), sets);
  const SystemSpec& quest = experiment.systems[0];
  const SystemSpec& kvswap = experiment.systems[1];
  EXPECT_EQ(argument_of(quest, "selection", "budget_tokens"), 77);
  EXPECT_EQ(argument_of(kvswap, "selection", "budget_tokens"), 77);
  EXPECT_EQ(argument_of(kvswap, "cache", "capacity_groups"), 9);
  EXPECT_EQ(argument_of(quest, "cache", "steps"), 1);
  EXPECT_EQ(argument_of(quest, "stream", "sink_tokens"), 0);
  EXPECT_EQ(argument_of(kvswap, "stream", "sink_tokens"), 3);
  EXPECT_EQ(experiment.models.front().weight_bits, 4);
  EXPECT_EQ(experiment.platforms.front().dram_bytes_s, 80e9);
  EXPECT_EQ(experiment.devices[1].device.arguments().integer("queue_depth"), 8);
  EXPECT_NE(experiment.devices[0].device.arguments().integer("queue_depth"), 8);
}

TEST_F(ExperimentTest, TheFilesSettingsComeFirst) {
  json members = sound();
  members["set"] = {{"system.selection.budget_tokens", 50}, {"system.cache.capacity_groups", 7}};
  Experiment experiment = load(members, {"system.selection.budget_tokens=60"});
  EXPECT_EQ(argument_of(experiment.systems[1], "selection", "budget_tokens"), 60);
  EXPECT_EQ(argument_of(experiment.systems[1], "cache", "capacity_groups"), 7);
  // None of the systems chosen instead has a capacity, and the file could not know that.
  experiment = load(members, {"system=quest"});
  EXPECT_EQ(argument_of(experiment.systems[0], "selection", "budget_tokens"), 50);
}

TEST_F(ExperimentTest, APartThatReplacesAnotherKeepsWhatBothHave) {
  const Experiment experiment =
      load(sound(), {"system.kvswap.cache.part=lru", "system.quest.cache.part=none"});
  EXPECT_EQ(experiment.systems[0].place.cache.name(), "none");
  EXPECT_EQ(experiment.systems[1].place.cache.name(), "lru");
  EXPECT_EQ(argument_of(experiment.systems[1], "cache", "capacity_groups"),
            argument_of(load(sound()).systems[1], "cache", "capacity_groups"));
}

TEST_F(ExperimentTest, ResolvedNamesWhatResultsDependOn) {
  const std::string base = load(sound()).resolved();
  EXPECT_EQ(base, load(sound()).resolved());
  EXPECT_EQ(base, load(sound(), {"threads=2"}).resolved());
  for (const char* set :
       {"seed=2", "batch=1", "device=ufs40", "system.kvswap.cache.capacity_groups=3",
        "model.weight_bits=8", "platform.layer_overhead_us=1", "device.queue_depth=2", "steps=5",
        "timed_steps=3", "warm_up_steps=1", "system.kvswap.cache.part=lru"}) {
    EXPECT_NE(base, load(sound(), {set}).resolved()) << set;
  }
}

TEST_F(ExperimentTest, AListInSetMultipliesTheCells) {
  json members = sound();
  members["device"] = "ufs40";
  members["batch"] = 1;
  members["set"] = {{"system.cache.capacity_groups", {16, 32}},
                    {"system.selection.budget_tokens", {64, 128}}};
  const Experiment experiment = load(members);
  EXPECT_THAT(experiment.swept, testing::ElementsAre("system.cache.capacity_groups",
                                                     "system.selection.budget_tokens"));
  // Quest's cache has no capacity, so Quest appears once per budget.
  EXPECT_THAT(rows_of(experiment),
              testing::ElementsAre("quest - 64", "kvswap 16 64", "quest - 128", "kvswap 16 128",
                                   "kvswap 32 64", "kvswap 32 128"));
  EXPECT_EQ(experiment.systems.size(), 6U);
  const Cell& last = experiment.cells.back();
  EXPECT_EQ(argument_of(experiment.systems[last.system], "cache", "capacity_groups"), 32);
  EXPECT_EQ(argument_of(experiment.systems[last.system], "selection", "budget_tokens"), 128);
}

/// The swept values of kvswap's cache capacity in bytes.
std::vector<std::int64_t> capacities_of(const Experiment& experiment) {
  std::vector<std::int64_t> values;
  for (const Cell& cell : experiment.cells) {
    values.push_back(argument_of(experiment.systems[cell.system], "cache", "capacity_bytes"));
  }
  return values;
}

TEST_F(ExperimentTest, Ranges) {
  json members = sound();
  members["device"] = "ufs40";
  members["batch"] = 1;
  members["system"] = "kvswap";
  const auto capacities = [&](const json& range) {
    members["set"] = {{"system.cache.capacity_bytes", range}, {"system.cache.capacity_groups", 0}};
    return capacities_of(load(members));
  };
  using testing::ElementsAre;
  EXPECT_THAT(capacities({{"from", 10}, {"to", 31}, {"step", 10}}), ElementsAre(10, 20, 30));
  EXPECT_THAT(capacities({{"from", 10}, {"to", 80}, {"factor", 2}}), ElementsAre(10, 20, 40, 80));
  EXPECT_THAT(capacities({{"from", 2}, {"to", 12}, {"count", 5}}), ElementsAre(2, 5, 7, 10, 12));
  EXPECT_THAT(capacities({{"from", 1}, {"to", 1000}, {"count", 4}, {"scale", "log"}}),
              ElementsAre(1, 10, 100, 1000));
  // Rounded to whole numbers without repetition.
  EXPECT_THAT(capacities({{"from", 1}, {"to", 4}, {"count", 9}, {"scale", "log"}}),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(capacities({{"from", "64KiB"}, {"to", "0.25 MiB"}, {"factor", 2}}),
              ElementsAre(65536, 131072, 262144));
  EXPECT_THAT(capacities({"1kB", "64KiB", 7}), ElementsAre(1000, 65536, 7));
  EXPECT_THAT(capacities({{"from", 5}, {"to", 9}, {"count", 1}}), ElementsAre(5));

  members["set"] = {{"model.weight_bits", {{"from", 4}, {"to", 5.0}, {"step", 0.25}}}};
  std::vector<double> bits;
  const Experiment experiment = load(members);
  for (const Cell& cell : experiment.cells) {
    bits.push_back(experiment.models[cell.model].weight_bits);
  }
  EXPECT_THAT(bits, ElementsAre(4, 4.25, 4.5, 4.75, 5));
}

TEST_F(ExperimentTest, BadRanges) {
  const auto error = [](const json& range) {
    json members = sound();
    members["set"] = {{"system.kvswap.cache.capacity_groups", range}};
    return error_of(members);
  };
  EXPECT_THAT(error({{"from", 1}, {"to", 9}}), HasSubstr("exactly one of step, factor and count"));
  EXPECT_THAT(error({{"from", 1}, {"to", 9}, {"step", 1}, {"count", 2}}), HasSubstr("exactly one"));
  EXPECT_THAT(error({{"from", 1}, {"step", 1}}), HasSubstr("'to' is missing"));
  EXPECT_THAT(error({{"from", 9}, {"to", 1}, {"step", 1}}), HasSubstr("at least from, 9"));
  EXPECT_THAT(error({{"from", 0}, {"to", 9}, {"factor", 2}}), HasSubstr("above 0"));
  EXPECT_THAT(error({{"from", 1}, {"to", 9}, {"factor", 1}}), HasSubstr("above 1"));
  EXPECT_THAT(error({{"from", 1}, {"to", 9}, {"count", 1.5}}), HasSubstr("integer from 1"));
  EXPECT_THAT(error({{"from", 1}, {"to", 1e9}, {"step", 1}}), HasSubstr("more than 100000 values"));
  EXPECT_THAT(error({{"from", 1}, {"to", 9}, {"count", 3}, {"scale", "lgo"}}),
              HasSubstr("did you mean 'log'"));
  EXPECT_THAT(error({{"from", 1}, {"to", 9}, {"stride", 3}}), HasSubstr("unknown member 'stride'"));
  EXPECT_THAT(error({{"from", "few"}, {"to", 9}, {"step", 3}}), HasSubstr("a size such as 64KiB"));
  EXPECT_THAT(error({{"from", 1.5}, {"to", 2.5}, {"step", 1}}),
              AllOf(HasSubstr("/set/system.kvswap.cache.capacity_groups"), HasSubstr("real 1.5"),
                    HasSubstr("integer")));
  EXPECT_THAT(error({{"from", "1KiB"}, {"to", "4KiB"}, {"factor", 2}}),
              AllOf(HasSubstr("the size 1024B"), HasSubstr("for bytes alone")));
  EXPECT_THAT(error(json::array()), HasSubstr("at least one"));
  EXPECT_THAT(error_of_set("system.kvswap.cache.capacity_groups=64KiB"),
              AllOf(HasSubstr("the size 64KiB"), HasSubstr("for bytes alone")));
}

TEST_F(ExperimentTest, ZipsGoInStep) {
  json members = sound();
  members["batch"] = 1;
  members["zip"] = {{"device", {"ufs40", "emmc51"}},
                    {"platform", {"oneplus12", "orin_agx"}},
                    {"model.weight_bits", {4, 8}}};
  const Experiment experiment = load(members, {"system=quest"});
  ASSERT_EQ(experiment.cells.size(), 2U);
  for (const Cell& cell : experiment.cells) {
    const bool phone = experiment.devices[cell.device].name == "ufs40";
    EXPECT_EQ(experiment.platforms[cell.platform].name, phone ? "oneplus12" : "orin_agx");
    EXPECT_EQ(experiment.models[cell.model].weight_bits, phone ? 4 : 8);
  }
  EXPECT_THAT(experiment.swept, testing::ElementsAre("model.weight_bits"));

  members["zip"]["seed"] = {1, 2, 3};
  EXPECT_THAT(error_of(members), AllOf(HasSubstr("/zip/"), HasSubstr("found 3 values"),
                                       HasSubstr("2, as many as 'device' has")));
  members["zip"] = {{"devize", {"ufs40"}}};
  EXPECT_THAT(error_of(members), AllOf(HasSubstr("/zip/devize"), HasSubstr("'device'")));
}

TEST_F(ExperimentTest, CasesHaveNames) {
  json members = sound();
  members["batch"] = 1;
  members["system"] = "kvswap";
  members["cases"] = {{"slow", {{"device", "emmc51"}, {"system.cache.capacity_groups", 64}}},
                      {"fast", {{"device", {"ufs40", "nvme_jetson"}}, {"seed", 5}}}};
  const Experiment experiment = load(members);
  EXPECT_THAT(experiment.swept,
              testing::ElementsAre("case", "experiment.seed", "system.cache.capacity_groups"));
  EXPECT_THAT(rows_of(experiment),
              testing::ElementsAre("kvswap fast 5 -", "kvswap fast 5 -", "kvswap slow 1 64"));
  EXPECT_THAT(rows_of(load(members, {"case=slow"})), testing::ElementsAre("kvswap slow"));
  EXPECT_THAT(rows_of(load(members, {"system.cache.capacity_groups=3", "device=ufs40"})),
              testing::ElementsAre("kvswap fast 5", "kvswap slow 1"));
  EXPECT_THAT(error_of(members, {"case=slwo"}), HasSubstr("did you mean 'slow'"));
  EXPECT_THAT(error_of(sound(), {"case=slow"}), HasSubstr("has no cases"));
  members["cases"]["slow"]["seed"] = {1, 2};
  EXPECT_THAT(error_of(members), AllOf(HasSubstr("/cases/slow/seed"), HasSubstr("one value")));
}

TEST_F(ExperimentTest, TheCommandLineTakesListsAndRanges) {
  json members = sound();
  members["device"] = "ufs40";
  members["batch"] = 1;
  members["set"] = {{"system.kvswap.cache.capacity_groups", {1, 2, 3}}};
  const std::string key = "system.kvswap.cache.capacity_groups=";
  using testing::ElementsAre;
  EXPECT_THAT(rows_of(load(members, {"system=kvswap", key + "7,9"})),
              ElementsAre("kvswap 7", "kvswap 9"));
  EXPECT_THAT(rows_of(load(members, {"system=kvswap", key + R"({"from":2,"to":8,"factor":2})"})),
              ElementsAre("kvswap 2", "kvswap 4", "kvswap 8"));
  EXPECT_THAT(rows_of(load(members, {"system=kvswap", key + "5"})), ElementsAre("kvswap"));
  EXPECT_THAT(rows_of(load(members, {"system=kvswap", key + "5,6", key + "8"})),
              ElementsAre("kvswap"));
  EXPECT_THAT(rows_of(load(members, {"system=quest", "seed=1,2"})),
              ElementsAre("quest 1", "quest 2"));
  EXPECT_THAT(error_of(sound(), {key + "1,few"}), AllOf(HasSubstr("text few")));
  EXPECT_THAT(error_of(sound(), {"threads=1,2"}), HasSubstr("threads"));
}

TEST_F(ExperimentTest, ASettingMustReachSomethingSomewhere) {
  json members = sound();
  members["batch"] = 1;
  members["device"] = "ufs40";
  members["cases"] = {{"quest", {{"system", "quest"}}}, {"kvswap", {{"system", "kvswap"}}}};
  members["set"] = {{"system.cache.capacity_groups", {4, 8}}};
  EXPECT_THAT(rows_of(load(members)),
              testing::ElementsAre("kvswap kvswap 4", "quest quest -", "kvswap kvswap 8"));
  members["cases"].erase("kvswap");
  EXPECT_THAT(error_of(members), HasSubstr("cache.capacity_groups"));
}

TEST_F(ExperimentTest, BadMembers) {
  const auto with = [](const char* member, const json& value) {
    json members = sound();
    members[member] = value;
    return members;
  };
  EXPECT_THAT(error_of(with("device", "emmc52")),
              AllOf(HasSubstr("test.json: /device"), HasSubstr("did you mean 'emmc51'")));
  EXPECT_THAT(error_of(with("system", {"quest", 7})),
              AllOf(HasSubstr("/system/1"), HasSubstr("found number 7"), HasSubstr("text")));
  EXPECT_THAT(error_of(with("system", json::array())), HasSubstr("at least one system"));
  EXPECT_THAT(error_of(with("batch", {1, -4})),
              AllOf(HasSubstr("batch"), HasSubstr("-4"), HasSubstr("from 1 to 4096 sequences")));
  EXPECT_THAT(error_of(with("batch", 1.5)), AllOf(HasSubstr("real 1.5"), HasSubstr("integer")));
  EXPECT_THAT(error_of(with("seed", "x")), AllOf(HasSubstr("/seed"), HasSubstr("text x")));
  EXPECT_THAT(error_of(with("sytem", "quest")), HasSubstr("did you mean 'system'"));
  EXPECT_THAT(error_of(with("device", {"ufs40", "ufs40"})), HasSubstr("twice"));
  EXPECT_THAT(error_of(with("trace", "none.kvtrace.h5")), HasSubstr("none.kvtrace.h5"));
  EXPECT_THAT(error_of(with("set", {{"system.cash.size", 1}})),
              AllOf(HasSubstr("/set/system.cash.size"), HasSubstr("cash.size")));
  EXPECT_THAT(error_of(with("set", {{"device", "ufs40"}})), HasSubstr("/set/device"));
  json members = sound();
  members.erase("model");
  EXPECT_THAT(error_of(members), HasSubstr("'model' is missing"));
}

TEST_F(ExperimentTest, BadSettings) {
  EXPECT_THAT(error_of_set("device"), AllOf(HasSubstr("--set device"), HasSubstr("key=value")));
  EXPECT_THAT(error_of_set("=3"), HasSubstr("key=value"));
  EXPECT_THAT(error_of_set("device="), HasSubstr("key=value"));
  EXPECT_THAT(error_of_set("divice=ufs40"), HasSubstr("did you mean 'device'"));
  EXPECT_THAT(error_of_set("device=ufs41"),
              AllOf(HasSubstr("--set device=ufs41"), HasSubstr("did you mean 'ufs40'")));
  EXPECT_THAT(error_of_set("steps=many"), AllOf(HasSubstr("--set steps=many"), HasSubstr("text")));
  EXPECT_THAT(error_of_set("system.cache.capacity_grops=9"),
              HasSubstr("did you mean 'cache.capacity_groups'"));
  EXPECT_THAT(error_of_set("system.quest.cache.capacity_groups=9"),
              HasSubstr("quest.cache.capacity_groups"));
  EXPECT_THAT(error_of_set("system.cache.capacity_groups=-3"),
              AllOf(HasSubstr("--set system.cache.capacity_groups=-3"), HasSubstr("from 0")));
  EXPECT_THAT(error_of_set("system.kvswap.cache.part=lro"), HasSubstr("did you mean 'lru'"));
  EXPECT_THAT(error_of_set("model.layers=0"),
              AllOf(HasSubstr("--set model.layers=0"), HasSubstr("from 1")));
  EXPECT_THAT(error_of_set("device.queue_depth=deep"), HasSubstr("text deep"));
}

TEST_F(ExperimentTest, PartsThatDoNotFit) {
  EXPECT_THAT(error_of_set("system.quest.pipeline.part=layer_prefetch"),
              AllOf(HasSubstr("quest.json: /pipeline"), HasSubstr("look_ahead")));
  const Experiment experiment = load(sound(), {"system.kvswap.pipeline.part=serial"});
  EXPECT_EQ(experiment.systems[1].pipeline.name(), "serial");
}

}  // namespace
}  // namespace kvreplay
