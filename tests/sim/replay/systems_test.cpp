#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "policies/decide/decide.hpp"
#include "sim/replay/experiment.hpp"
#include "sim/replay/results.hpp"
#include "sim/time/time_plan.hpp"
#include "tests/support/temporary_folder.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kSteps = 16;
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// What every committed system does in the first steps of the shipped trace, as configs/experiments
/// all_systems sets it up: decided once for all tests.
class Systems : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const ConfigFolder configs = ConfigFolder::standard();
    const std::vector<std::string> sets{"steps=" + std::to_string(kSteps), "warm_up_steps=0",
                                        "timed_steps=0"};
    experiment_ = std::make_unique<Experiment>(
        Experiment::load(configs.file("experiments", "all_systems", {}), sets, configs));
    folder_ = std::make_unique<TemporaryFolder>();
    result_ = std::make_unique<ReplayResult>(
        replay(*experiment_, {.show_progress = false, .access_log_folder = folder_->path()}));
  }
  static void TearDownTestSuite() {
    result_.reset();
    folder_.reset();
    experiment_.reset();
  }

  [[nodiscard]] static AccessLog log_of(const SystemSpec& system) {
    return read_access_log(
        folder_->file(trace_name(experiment_->traces.front()) + "." + system.name + ".access.h5"));
  }
  [[nodiscard]] static bool in_memory(const SystemSpec& system) {
    return system.place.cache.name() == "resident";
  }

  static inline std::unique_ptr<Experiment> experiment_;
  static inline std::unique_ptr<TemporaryFolder> folder_;
  static inline std::unique_ptr<ReplayResult> result_;
};

TEST_F(Systems, AreAllInTheExperiment) {
  std::vector<std::string> names;
  for (const SystemSpec& system : experiment_->systems) names.push_back(system.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, ConfigFolder::standard().names("systems"));
  EXPECT_EQ(result_->cells.size(), names.size());
}

TEST_F(Systems, HaveFiniteResults) {
  for (const CellResult& cell : result_->cells) {
    SCOPED_TRACE(cell.system);
    for (const Column<CellResult>& column : result_columns()) {
      const CellValue value = column.value(cell);
      const auto* number = std::get_if<double>(&value);
      if (number == nullptr) continue;
      // NaN stands for a ratio without a denominator.
      EXPECT_TRUE(std::isnan(*number) || (std::isfinite(*number) && *number >= 0)) << column.name;
    }
    for (const double always : {cell.quality.recall, cell.quality.attention_mass,
                                cell.quality.output_error, cell.timing.attended_tokens}) {
      EXPECT_TRUE(std::isfinite(always));
    }
    EXPECT_GT(cell.quality.attended_tokens, 1);
    EXPECT_GT(cell.quality.attention_mass, 0);
    EXPECT_LE(cell.quality.attention_mass, cell.quality.best_attention_mass + 1e-6);
    EXPECT_GT(cell.timing.dram.kv_bytes(), 0);
    EXPECT_EQ(std::ssize(cell.timing.steps), kSteps);
  }
}

TEST_F(Systems, ReadUnlessAllIsInMemory) {
  for (std::size_t i = 0; i < experiment_->systems.size(); ++i) {
    const CellResult& cell = result_->cells[i];
    SCOPED_TRACE(cell.system);
    std::int64_t read_bytes = 0;
    std::int64_t write_bytes = 0;
    for (const StepTiming& step : cell.timing.steps) {
      read_bytes += step.read_bytes;
      write_bytes += step.write_bytes;
    }
    EXPECT_EQ(read_bytes > 0, !in_memory(experiment_->systems[i]));
    EXPECT_EQ(cell.timing.prompt_write_bytes > 0, !in_memory(experiment_->systems[i]));
    if (in_memory(experiment_->systems[i])) {
      EXPECT_EQ(write_bytes, 0);
    } else {
      EXPECT_GT(cell.timing.missed_bytes, 0);
      EXPECT_GE(read_bytes, cell.timing.missed_bytes);
    }
  }
}

/// How much the selection's arguments allow a row to pick; kUnlimited where they set no number.
std::int64_t selection_budget(const SystemSpec& system) {
  const auto& all = system.decide.selection.arguments().all();
  if (!all.contains("budget_tokens")) return kUnlimited;
  return std::get<std::int64_t>(all.find("budget_tokens")->second.value);
}

TEST_F(Systems, PickNoMoreTokensThanTheirBudget) {
  for (const SystemSpec& system : experiment_->systems) {
    SCOPED_TRACE(system.name);
    const std::int64_t budget = selection_budget(system);
    if (budget == kUnlimited) continue;
    std::int64_t max = 0;
    for (const LayerLog& layer : log_of(system).layers) {
      for (const StreamLog& stream : layer.streams) {
        Groups groups;
        for (std::int64_t step = 0; step < stream.steps(); ++step) {
          stream.for_events(step, [&](const GroupEvent& event) { groups.on_event(event); });
          for (std::int64_t row = step * stream.rows; row < (step + 1) * stream.rows; ++row) {
            const auto at = static_cast<std::size_t>(row);
            std::int64_t tokens = 0;
            for (std::int64_t p = stream.pick_begin[at]; p < stream.pick_begin[at + 1]; ++p) {
              const bool is_last = p + 1 == stream.pick_begin[at + 1];
              const GroupId group = stream.picked[static_cast<std::size_t>(p)];
              tokens += is_last ? stream.last_tokens[at] : std::ssize(groups.members(group));
            }
            EXPECT_LE(tokens, budget);
            max = std::max(max, tokens);
          }
        }
      }
    }
    // A threshold may leave much of the budget unused.
    EXPECT_GT(max, system.decide.selection.name() == "threshold" ? 0 : budget / 2);
  }
}

/// Upper limit of the tokens that a head may attend to after the eviction at the prompt's end,
/// without its own.
std::int64_t retention_budget(const SystemSpec& system, std::int64_t prompt_tokens) {
  const Arguments& arguments = system.decide.retention.arguments();
  const std::string& part = system.decide.retention.name();
  if (part == "tailored") return arguments.integer("budget_tokens");
  if (part == "at_prefill") return arguments.integer("capacity_tokens") + kSteps;
  if (part == "sinks_and_window") {
    return arguments.integer("sink_tokens") + arguments.integer("window_tokens");
  }
  if (part == "heavy_hitters") {
    return static_cast<std::int64_t>(
        std::ceil((arguments.real("heavy_share") + arguments.real("recent_share")) *
                  static_cast<double>(prompt_tokens)));
  }
  return kUnlimited;
}

TEST_F(Systems, KeepNoMoreTokensThanTheirBudget) {
  int limited = 0;
  for (const SystemSpec& system : experiment_->systems) {
    SCOPED_TRACE(system.name);
    const AccessLog log = log_of(system);
    const std::int64_t budget = retention_budget(system, log.prompt_tokens);
    if (budget == kUnlimited) continue;
    ++limited;
    for (const LayerLog& layer : log.layers) {
      for (const StreamLog& stream : layer.streams) {
        for (const std::int32_t tokens : stream.attended_count) {
          EXPECT_LE(tokens, budget + 1);
          EXPECT_GT(tokens, 1);
        }
      }
    }
  }
  EXPECT_GE(limited, 7);
}

}  // namespace
}  // namespace kvreplay
