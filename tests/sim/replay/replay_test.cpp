#include "sim/replay/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/build_info.hpp"
#include "policies/decide/log/access_log.hpp"
#include "policies/place/io_plan_bytes.hpp"
#include "sim/replay/folder_store.hpp"
#include "sim/replay/results.hpp"
#include "sim/replay/stage_keys.hpp"
#include "sim/replay/stage_store.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using nlohmann::json;

const std::string kSource = source_folder();

class ReplayTest : public testing::Test {
 protected:
  ReplayTest() {
    write_synthetic_trace(folder_.file("a.kvtrace.h5"));
    write_synthetic_trace(folder_.file("b.kvtrace.h5"), {.prompt = 200, .decode = 20, .seed = 2});
  }

  Experiment load(const std::vector<std::string>& sets) {
    const json members = {
        {"title", "test"},
        {"trace", {"a.kvtrace.h5", "b.kvtrace.h5"}},
        {"system", {"in_memory", "flexgen", "quest", "clusterkv"}},
        {"model", {"smollm2-135m", "llama3.2-1b"}},
        {"platform", "orin_agx"},
        {"device", {"emmc51", "ufs40"}},
        {"batch", {1, 2}},
        {"set", {{"system.selection.budget_tokens", 64}, {"system.stream.dense_layers", 0}}},
        {"warm_up_steps", 4},
        {"timed_steps", 6}};
    std::ofstream(folder_.file("test.json")) << members;
    return Experiment::load(folder_.file("test.json"), sets, ConfigFolder(kSource + "/configs"));
  }

  TemporaryFolder folder_;
};

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST_F(ReplayTest, EveryCellOnceInOrderAndConsistent) {
  const Experiment experiment = load({});
  const ReplayResult result = replay(experiment);
  ASSERT_EQ(result.cells.size(), 2U * 4 * 2 * 2 * 2);
  EXPECT_EQ(result.layers.size(), 2U * 4 * 2);
  EXPECT_EQ(result.cells[0].system, "in_memory");
  EXPECT_EQ(result.cells[1].system, "flexgen");
  EXPECT_EQ(result.cells[4].device, "ufs40");
  EXPECT_EQ(result.cells[8].batch, 2);
  EXPECT_EQ(result.cells[16].model, "llama3.2-1b");
  EXPECT_EQ(result.cells[32].trace, "b");

  for (const CellResult& cell : result.cells) {
    const Timing& timing = cell.timing;
    ASSERT_EQ(timing.steps.size(), 6U);
    EXPECT_EQ(timing.requested_bytes, timing.hit_bytes + timing.missed_bytes);
    std::int64_t read_bytes = 0;
    for (const StepTiming& step : timing.steps) {
      EXPECT_EQ(step.latency_ns, step.compute_ns + step.exposed_io_ns);
      EXPECT_LE(step.exposed_io_ns, step.busy_io_ns);
      read_bytes += step.read_bytes;
    }
    EXPECT_GE(read_bytes, timing.missed_bytes);
    EXPECT_GE(timing.flash_read_bytes, read_bytes);
    EXPECT_NE(cell.projection, "none");
    if (cell.system == "in_memory") {
      EXPECT_EQ(read_bytes, 0);
      EXPECT_EQ(timing.hit_bytes, timing.requested_bytes);
    } else {
      EXPECT_GT(read_bytes, 0) << cell.system;
    }
    if (cell.system == "flexgen" || cell.system == "in_memory") {
      EXPECT_EQ(cell.quality.recall, 1);
      EXPECT_EQ(cell.quality.attention_mass, 1);
      EXPECT_EQ(cell.quality.output_error, 0);
    } else {
      EXPECT_LT(cell.quality.attention_mass, 1);
      EXPECT_GT(cell.quality.attention_mass, 0);
    }
  }
}

TEST_F(ReplayTest, OneThreadOrTwoTheSameBytes) {
  for (const char* threads : {"1", "2"}) {
    const Experiment experiment = load({std::string("threads=") + threads});
    const ReplayResult result = replay(experiment);
    write_results(folder_.file(threads), experiment, result);
  }
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.file("1"))) {
    files.insert(entry.path().filename().string());
    EXPECT_EQ(content_of(entry.path()), content_of(folder_.file("2") / entry.path().filename()))
        << entry.path();
  }
  EXPECT_THAT(files, testing::ElementsAre("manifest.json", "quality.csv", "results.csv",
                                          "results.json", "table.txt"));
}

TEST_F(ReplayTest, ACellDoesNotDependOnTheOthers) {
  const ReplayResult all = replay(load({}));
  const ReplayResult one = replay(load({"trace=" + folder_.file("b.kvtrace.h5"), "system=quest",
                                        "model=llama3.2-1b", "device=ufs40", "batch=2"}));
  ASSERT_EQ(one.cells.size(), 1U);
  const std::string alone = results_csv(one.cells);
  const std::string row = alone.substr(alone.find('\n') + 1);
  EXPECT_NE(results_csv(all.cells).find("\n" + row), std::string::npos);
}

// --- With a store, in shards ---

class SweepTest : public ReplayTest {
 protected:
  Experiment sweep(const std::vector<std::string>& more = {}) {
    std::vector<std::string> sets{"system=quest,clusterkv",
                                  "model=llama3.2-1b",
                                  "batch=1",
                                  "steps=12",
                                  "system.cache.part=fifo,lru",
                                  "system.cache.capacity_groups=8,64",
                                  "system.quest.grouping.group_tokens=8,16"};
    sets.insert(sets.end(), more.begin(), more.end());
    return load(sets);
  }
  [[nodiscard]] FolderStore open_store() const {
    return FolderStore(folder_.file("cache"), 1 << 30);
  }

  static std::string text_of(const ReplayResult& result) {
    return results_csv(result.cells) + quality_csv(result.layers);
  }
  static ReplayResult with(const Experiment& experiment, FolderStore& store) {
    return replay(experiment, {.store = store});
  }
};

TEST_F(SweepTest, MemoisedOrNotTheSameBytes) {
  const Experiment experiment = sweep();
  const std::string expected = text_of(replay(experiment));
  FolderStore store = open_store();
  EXPECT_EQ(text_of(with(experiment, store)), expected);
  EXPECT_EQ(store.problem(), "");
  EXPECT_EQ(text_of(with(experiment, store)), expected) << "everything was there";
  for (const char* removed : {"decide", "place", "time", "quality"}) {
    std::filesystem::remove_all(std::filesystem::path(store.folder()) / removed);
    EXPECT_EQ(text_of(with(experiment, store)), expected) << "without " << removed;
  }
  for (const auto& [first, second] :
       {std::pair("time", "place"), std::pair("time", "decide"), std::pair("quality", "decide")}) {
    std::filesystem::remove_all(std::filesystem::path(store.folder()) / first);
    std::filesystem::remove_all(std::filesystem::path(store.folder()) / second);
    EXPECT_EQ(text_of(with(experiment, store)), expected) << first << " and " << second;
  }
}

TEST_F(SweepTest, DamagedEntriesAreMadeAgain) {
  const Experiment experiment = sweep();
  FolderStore store = open_store();
  const std::string expected = text_of(with(experiment, store));
  std::size_t number = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(store.folder())) {
    if (!entry.is_regular_file() || entry.file_size() == 0) continue;
    const auto size = entry.file_size();
    switch (number++ % 4) {
      case 0:
        std::filesystem::resize_file(entry.path(), size / 2);
        break;
      case 1:
        std::fstream(entry.path(), std::ios::in | std::ios::out | std::ios::binary) << "damage";
        break;
      case 2:
        std::ofstream(entry.path(), std::ios::trunc) << "something else";
        break;
      default:
        break;
    }
  }
  ASSERT_GT(number, 20U);
  EXPECT_EQ(text_of(with(experiment, store)), expected);
  EXPECT_EQ(Replay(experiment, {.store = store}).finished_cells(), experiment.cells.size());
}

TEST_F(SweepTest, OutputsAreSharedAsFarAsTheyCanBe) {
  const Experiment experiment = sweep({"device=emmc51,ufs40"});
  const Replay cold(experiment, {});
  const std::array<StageCost, 3> costs = cold.costs();
  // Two traces; quest with two group sizes and clusterkv.
  EXPECT_EQ(costs[0].outputs, 2 * 3);
  // Two caches of two capacities each.
  EXPECT_EQ(costs[1].outputs, 2 * 3 * 4);
  EXPECT_EQ(costs[2].outputs, 2 * 3 * 4 * 2);
  EXPECT_EQ(cold.cells(), 2U * 3 * 4 * 2);
  for (const StageCost& cost : costs) {
    EXPECT_EQ(cost.stored, 0);
    EXPECT_GT(cost.seconds, 0);
  }
  FolderStore store = open_store();
  with(sweep({"device=emmc51"}), store);
  const Replay warm(experiment, {.store = store});
  EXPECT_EQ(warm.finished_cells(), warm.cells() / 2);
  EXPECT_EQ(warm.costs()[0].stored, warm.costs()[0].outputs);
  EXPECT_EQ(warm.costs()[1].stored, warm.costs()[1].outputs);
  EXPECT_EQ(warm.costs()[2].stored, warm.costs()[2].outputs / 2);
}

TEST_F(SweepTest, AKeyChangesWithAllThatItDependsOn) {
  FolderStore store = open_store();
  with(sweep(), store);
  const auto stored_of = [&](const Experiment& experiment) {
    std::array<bool, 3> all{};
    const Replay replay(experiment, {.store = store});
    for (std::size_t i = 0; i < 3; ++i) {
      all[i] = replay.costs()[i].stored == replay.costs()[i].outputs;
    }
    return all;
  };
  using testing::ElementsAre;
  EXPECT_THAT(stored_of(sweep()), ElementsAre(true, true, true));
  EXPECT_THAT(stored_of(sweep({"seed=2"})), ElementsAre(false, false, false));
  EXPECT_THAT(stored_of(sweep({"steps=11"})), ElementsAre(false, false, false));
  EXPECT_THAT(stored_of(sweep({"system.selection.budget_tokens=80"})),
              ElementsAre(false, false, false));
  EXPECT_THAT(stored_of(sweep({"system.cache.capacity_groups=9"})),
              ElementsAre(true, false, false));
  EXPECT_THAT(stored_of(sweep({"system.layout.part=sequence"})), ElementsAre(true, false, false));
  EXPECT_THAT(stored_of(sweep({"model=qwen2.5-1.5b"})), ElementsAre(true, false, false));
  for (const char* set :
       {"timed_steps=3", "warm_up_steps=3", "batch=2", "device=nvme_jetson", "device.queue_depth=2",
        "platform=oneplus12", "model.weight_bits=5", "platform.layer_overhead_us=1"}) {
    EXPECT_THAT(stored_of(sweep({set})), ElementsAre(true, true, false)) << set;
  }
  // Another content under the name of the trace.
  write_synthetic_trace(folder_.file("a.kvtrace.h5"), {.seed = 9});
  EXPECT_THAT(stored_of(sweep()), ElementsAre(false, false, false));
}

TEST_F(SweepTest, LittleMemoryOrMuchTheSameBytes) {
  const Experiment experiment = sweep();
  const std::string expected = text_of(replay(experiment));
  EXPECT_EQ(text_of(replay(experiment, {.memory_bytes = 1})), expected);
  EXPECT_EQ(text_of(replay(sweep({"threads=1"}))), expected);
  EXPECT_EQ(text_of(replay(sweep({"threads=3"}), {.memory_bytes = 100'000})), expected);
}

template <typename T>
std::int64_t bytes_of(const std::vector<T>& values) {
  return std::ssize(values) * static_cast<std::int64_t>(sizeof(T));
}

/// The memory that the log's arrays take.
std::int64_t memory_bytes(const AccessLog& log) {
  std::int64_t bytes = 0;
  for (const LayerLog& layer : log.layers) {
    bytes += bytes_of(layer.quality.recall) + bytes_of(layer.quality.attention_mass) +
             bytes_of(layer.quality.best_attention_mass) + bytes_of(layer.quality.output_error);
    for (const StreamLog& s : layer.streams) {
      bytes += bytes_of(s.event_begin) + bytes_of(s.event_kind) + bytes_of(s.event_group) +
               bytes_of(s.event_other) + bytes_of(s.event_token_begin) + bytes_of(s.event_tokens) +
               bytes_of(s.window_begin) + bytes_of(s.window_requested) +
               bytes_of(s.requested.begin()) + bytes_of(s.requested.bytes()) +
               bytes_of(s.picked.begin()) + bytes_of(s.picked.bytes()) + bytes_of(s.last_picked) +
               bytes_of(s.last_tokens) + bytes_of(s.attended_count) + bytes_of(s.attended.begin()) +
               bytes_of(s.attended.bytes()) + bytes_of(s.buffered_tokens) + bytes_of(s.held_bytes) +
               bytes_of(s.score_bytes) + bytes_of(s.score_flops);
    }
  }
  return bytes;
}

/// Keeps nothing. From the order in which outputs arrive, it derives which logs and plans the
/// replay holds: logs until the next ones are decided, plans until the next ones follow a timing.
class MeteringStore final : public StageStore {
 public:
  explicit MeteringStore(std::string file) : file_(std::move(file)) {}

  [[nodiscard]] std::optional<std::string> find(const std::string&, const std::string&) override {
    return std::nullopt;
  }
  [[nodiscard]] std::optional<std::string> read(const std::string&, const std::string&) override {
    return std::nullopt;
  }
  void put(const std::string& of_kind, const std::string&, std::string_view output) override {
    if (of_kind == kind::kTiming) timed_ = true;
    if (of_kind != kind::kPlan) return;
    if (std::exchange(timed_, false)) plan_bytes_ = 0;
    placed_ = true;
    plan_bytes_ += kvreplay::memory_bytes(plan_from(output));
    ++plans_;
    peak_bytes_ = std::max(peak_bytes_, log_bytes_ + plan_bytes_);
  }
  void put_file(const std::string& of_kind, const std::string&,
                const std::function<void(const std::string& path)>& write) override {
    ASSERT_EQ(of_kind, kind::kLog);
    write(file_);
    if (std::exchange(placed_, false)) log_bytes_ = plan_bytes_ = 0;
    log_bytes_ += memory_bytes(read_access_log(file_));
    ++logs_;
    peak_bytes_ = std::max(peak_bytes_, log_bytes_ + plan_bytes_);
  }
  [[nodiscard]] std::string problem() const override { return ""; }
  [[nodiscard]] std::unique_ptr<Lock> lock(std::span<const std::string>) const override {
    return std::make_unique<Lock>();
  }

  [[nodiscard]] std::int64_t peak_bytes() const { return peak_bytes_; }
  [[nodiscard]] std::int64_t logs() const { return logs_; }
  [[nodiscard]] std::int64_t plans() const { return plans_; }

 private:
  const std::string file_;
  bool placed_ = false;  // a plan has arrived since the last log
  bool timed_ = false;   // a timing has arrived since the last plan
  std::int64_t log_bytes_ = 0;
  std::int64_t plan_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
  std::int64_t logs_ = 0;
  std::int64_t plans_ = 0;
};

TEST_F(SweepTest, LogsAndPlansStayWithinMemory) {
  const Experiment experiment = sweep({"threads=1"});
  const auto peak_bytes = [&](std::int64_t memory_bytes) {
    MeteringStore store(folder_.file("metered.access.h5"));
    static_cast<void>(replay(experiment, {.store = store, .memory_bytes = memory_bytes}));
    EXPECT_GT(store.logs(), 2);
    EXPECT_GT(store.plans(), store.logs());
    return store.peak_bytes();
  };
  const std::int64_t one_by_one = peak_bytes(1);
  const std::int64_t all_at_once = peak_bytes(std::int64_t{1} << 40);
  // The limit applies where half of the memory holds one log with one plan per thread.
  ASSERT_LT(2 * one_by_one, all_at_once);
  for (const std::int64_t share : {0, 1, 2, 3}) {
    const std::int64_t memory = 2 * one_by_one + (all_at_once - 2 * one_by_one) * share / 4;
    EXPECT_LE(peak_bytes(memory), memory);
  }
}

TEST_F(SweepTest, ShardsMakeUpTheWhole) {
  const Experiment experiment = sweep();
  write_results(folder_.file("whole"), experiment, replay(experiment));
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{2}, std::size_t{5}, std::size_t{70}}) {
    std::vector<std::string> folders;
    std::size_t cells = 0;
    FolderStore store = open_store();
    for (std::size_t index = count; index > 0; --index) {
      const Shard shard{index, count};
      const ReplayResult part = replay(experiment, {.store = store, .shard = shard});
      cells += part.cells.size();
      folders.push_back(folder_.file(std::to_string(index) + "-of-" + std::to_string(count)));
      write_results(folders.back(), experiment, part);
      write_shard(folders.back(), experiment, part, shard);
    }
    EXPECT_EQ(cells, experiment.cells.size());
    const std::string merged = folder_.file("merged-" + std::to_string(count));
    merge_shards(folders, merged);
    for (const auto& file : std::filesystem::directory_iterator(folder_.file("whole"))) {
      const std::filesystem::path name = file.path().filename();
      EXPECT_EQ(content_of(file.path()), content_of(merged / name)) << count << " " << name;
    }
  }
}

TEST_F(SweepTest, ShardsOfEqualSizeKeepTogetherWhatIsShared) {
  const Experiment experiment = sweep({"device=emmc51,ufs40"});
  std::int64_t decisions = 0;
  for (std::size_t index = 1; index <= 4; ++index) {
    const Replay part(experiment, {.shard = {index, 4}});
    EXPECT_EQ(part.cells(), experiment.cells.size() / 4);
    decisions += part.costs()[0].outputs;
  }
  EXPECT_LE(decisions, 6 + 3) << "a cut divides one decision at most";
}

TEST_F(SweepTest, ShardsThatDoNotFitAreRefused) {
  const auto shard = [&](const Experiment& experiment, Shard part, const std::string& name) {
    const ReplayResult result = replay(experiment, {.shard = part});
    write_results(folder_.file(name), experiment, result);
    write_shard(folder_.file(name), experiment, result, part);
    return folder_.file(name);
  };
  const auto error = [&](const std::vector<std::string>& folders) {
    return user_error_of([&] { merge_shards(folders, folder_.file("out")); });
  };
  const Experiment experiment = sweep();
  const std::string one = shard(experiment, {1, 2}, "one");
  const std::string two = shard(experiment, {2, 2}, "two");
  const std::string other = shard(sweep({"seed=2"}), {2, 2}, "other");
  using testing::HasSubstr;
  EXPECT_THAT(error({one}), HasSubstr("shard 2 of 2 is missing"));
  EXPECT_THAT(error({one, one}), HasSubstr("each shard once"));
  EXPECT_THAT(error({one, other}), HasSubstr("is of another run than"));
  EXPECT_THAT(error({one, folder_.file("none")}),
              HasSubstr("none/shard.json: cannot be opened for reading"));
  std::ofstream(two + "/shard.json") << "{\"format\": \"kvreplay-shard-2\"}";
  EXPECT_THAT(error({one, two}), HasSubstr("is no shard"));
}

TEST(Results, ColumnsAreDocumented) {
  const std::string page = content_of(kSource + "/docs/metrics.md");
  std::set<std::string> names;
  for (const Column<CellResult>& column : result_columns()) {
    EXPECT_TRUE(names.insert(column.name).second) << column.name << " twice";
    EXPECT_NE(page.find("`" + column.name + "`"), std::string::npos)
        << column.name << " is not in docs/metrics.md";
    EXPECT_FALSE(column.help.empty()) << column.name;
  }
  for (const Column<LayerQuality>& column : quality_columns()) {
    EXPECT_NE(page.find("`" + column.name + "`"), std::string::npos) << column.name;
  }
}

CellResult made_up_cell(const std::string& system, SimTime latency_ns) {
  CellResult cell;
  cell.trace = "a";
  cell.system = system;
  cell.projection = "1,2 \"x\"";
  cell.timing.steps.push_back({.latency_ns = latency_ns, .compute_ns = latency_ns});
  return cell;
}

TEST(Results, CsvQuotesAndLeavesUndefinedRatiosEmpty) {
  const std::vector<CellResult> cells{made_up_cell("one", 1'000'000)};
  const std::string csv = results_csv(cells);
  EXPECT_NE(csv.find(",\"1,2 \"\"x\"\"\","), std::string::npos);
  const json row = json::parse(results_json(cells)).at(0);
  EXPECT_EQ(row.at("hit_rate"), nullptr);
  EXPECT_EQ(row.at("read_amplification"), nullptr);
  EXPECT_EQ(row.at("tokens_per_s"), 1000.0);
  EXPECT_EQ(row.at("latency_ms"), 1.0);
  EXPECT_EQ(row.at("energy_mj_per_token"), nullptr);
}

TEST(Results, EnergyIsInMillijoulesAToken) {
  CellResult cell = made_up_cell("one", 1'000'000);
  cell.timing.steps.push_back(cell.timing.steps.front());
  cell.timing.batch = 3;
  cell.timing.energy = {.compute_nj = 12e6, .dram_nj = 6e6, .flash_nj = 3e6};
  const json row = json::parse(results_json(std::vector{cell})).at(0);
  EXPECT_EQ(row.at("compute_energy_mj_per_token"), 2.0);
  EXPECT_EQ(row.at("dram_energy_mj_per_token"), 1.0);
  EXPECT_EQ(row.at("flash_energy_mj_per_token"), 0.5);
  EXPECT_EQ(row.at("energy_mj_per_token"), 3.5);
}

TEST(Results, TheTableShowsOnceWhatIsTheSameEverywhere) {
  const std::vector<CellResult> cells{made_up_cell("one", 1'000'000),
                                      made_up_cell("two", 2'500'000)};
  const std::string table = results_table(cells);
  EXPECT_EQ(table.find("trace: a\n"), 0U);
  EXPECT_NE(table.find("\none "), std::string::npos);
  EXPECT_NE(table.find("1000.00"), std::string::npos);
  EXPECT_NE(table.find("400.00"), std::string::npos);
  EXPECT_EQ(results_table({}), "");
}

std::size_t longest_line_of(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

/// Rows in which every column differs.
std::vector<CellResult> varied_cells() {
  std::vector<CellResult> cells{made_up_cell("one", 1'000'000), made_up_cell("two", 2'500'000),
                                made_up_cell("three", 1'500'000)};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    CellResult& cell = cells[i];
    cell.device = "device" + std::to_string(i);
    cell.platform_dram_bytes = 1'000'000'000;
    cell.timing.dram.cache_bytes = static_cast<std::int64_t>(i + 1) * 420'000'000;
    cell.timing.requested_bytes = 10;
    cell.timing.hit_bytes = static_cast<std::int64_t>(i);
    cell.timing.energy.compute_nj = 1e9 * static_cast<double>(i + 1);
    cell.quality.attention_mass = 0.9 - 0.1 * static_cast<double>(i);
    cell.quality.output_error = 0.1 * static_cast<double>(i);
    cell.quality.attended_tokens = 64 * static_cast<double>(i + 1);
    for (StepTiming& step : cell.timing.steps) {
      step.compute_ns = static_cast<SimTime>(1000 + i);
      step.exposed_io_ns = static_cast<SimTime>(100'000 * (i + 1));
      step.read_bytes = static_cast<std::int64_t>(4'000'000 * (i + 1));
    }
    cell.settings = {{"system.selection.budget_tokens", Value(static_cast<std::int64_t>(64 << i))}};
  }
  return cells;
}

TEST(Results, ATableIsAtMostAHundredWideAndKeepsSpeedAndQuality) {
  const std::string table = results_table(varied_cells());
  EXPECT_LE(longest_line_of(table), 100U) << table;
  for (const char* kept :
       {"budget", "tokens", "latency", "attention", "output", "420 MB", "1.26 GB", "4.00 MB"}) {
    EXPECT_NE(table.find(kept), std::string::npos) << kept << '\n' << table;
  }
  EXPECT_NE(table.find("Not shown (--columns"), std::string::npos);
}

TEST(Results, WhatNoMachineCouldHoldIsSaidAboveTheTable) {
  const std::string table = results_table(varied_cells());
  EXPECT_EQ(table.find("WARNING: does not fit in the platform's DRAM"), 0U) << table;
  EXPECT_NE(table.find("three (1.26)"), std::string::npos);
  EXPECT_EQ(table.find("two (0.84)"), std::string::npos);
}

TEST(Results, AViewHasTheColumnsAndRowsThatWereAskedFor) {
  const ResultTable table = result_rows(varied_cells());
  EXPECT_EQ(view_text(table, {.format = "csv"}), csv_text(table)) << "every column, unrounded";
  EXPECT_EQ(view_text(table, {.format = "json"}), json_text(table));
  EXPECT_EQ(view_text(table, {.format = "none"}), "");
  EXPECT_EQ(
      view_text(table,
                {.format = "csv", .columns = {"system", "latency_ms"}, .sort = {"latency_ms"}}),
      "system,latency_ms\none,1\nthree,1.5\ntwo,2.5\n");
  EXPECT_EQ(
      view_text(table, {.format = "csv", .columns = {"system"}, .sort = {"budget_tokens:desc"}}),
      "system\nthree\ntwo\none\n");
  // Rows without names say nothing to people.
  const std::string labelled = view_text(table, {.columns = {"dram_share"}});
  EXPECT_NE(labelled.find("three"), std::string::npos);
  EXPECT_NE(labelled.find("dram_share"), std::string::npos);
  EXPECT_EQ(labelled.find("latency"), std::string::npos);
  const std::string added = view_text(table, {.columns = {"+recall", "+latency_p99_ms"}});
  EXPECT_NE(added.find("p99_ms"), std::string::npos);
  EXPECT_NE(added.find("attention"), std::string::npos);
  const std::string every = view_text(table, {.columns = {"dram_*"}});
  EXPECT_NE(every.find("dram_weights"), std::string::npos);
}

TEST(Results, AViewIsMarkdownOrLatex) {
  const ResultTable table = result_rows(varied_cells());
  TableView view{.format = "md", .columns = {"system", "dram_kv_bytes"}};
  EXPECT_NE(
      view_text(table, view).find("| system | dram_kv_bytes |\n|---|---|\n| one | 420 MB |\n"),
      std::string::npos);
  view.format = "latex";
  const std::string latex = view_text(table, view);
  EXPECT_NE(latex.find("System & DRAM of KV management \\\\\n\\midrule\none & 420 MB"),
            std::string::npos);
  EXPECT_EQ(latex.find("% WARNING"), 0U) << latex;
}

TEST(Results, AViewOfWhatThereIsNotIsRefused) {
  const std::vector<std::string> names = result_names(std::vector<std::string>{"batch.of"});
  const auto refused = [&](const TableView& view) {
    return user_error_of([&] { check_view(view, names); });
  };
  EXPECT_THAT(refused({.columns = {"latency"}}), testing::HasSubstr("--columns"));
  EXPECT_THAT(refused({.columns = {"latncy_ms"}}), testing::HasSubstr("latency_ms"));
  EXPECT_THAT(refused({.sort = {"latency_ms:down"}}), testing::HasSubstr("KEY:desc"));
  EXPECT_THAT(refused({.sort = {"nothing*"}}), testing::HasSubstr("--sort"));
  check_view({.columns = {"all", "+recall", "dram_*"}, .sort = {"latency_ms:desc", "of"}}, names);
}

TEST(Results, ACsvFileReadsBackAsTheSameTable) {
  const ResultTable table = result_rows(varied_cells());
  const ResultTable again = table_from_csv(csv_text(table), "results.csv");
  EXPECT_EQ(csv_text(again), csv_text(table));
  EXPECT_EQ(table_text(again), table_text(table));
  const ResultTable odd = table_from_csv("name,\"a,\"\"b\"\"\"\n\"x\ny\",1\n,\n", "f.csv");
  EXPECT_EQ(odd.columns.at(1).name, "a,\"b\"");
  EXPECT_EQ(odd.rows.at(0).at(0), CellValue{std::string("x\ny")});
  for (const char* bad : {"", "a,b\n", "a,b\n1\n"}) {
    EXPECT_THAT(user_error_of([&] { static_cast<void>(table_from_csv(bad, "f.csv")); }),
                testing::HasSubstr("f.csv"));
  }
}

}  // namespace
}  // namespace kvreplay
