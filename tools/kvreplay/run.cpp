// `run` and `sweep`: the same replay. A sweep also keeps the outputs of the stages, shows its cost
// beforehand, and can take a share of the cells.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/interrupt_cleanup.hpp"
#include "base/memory.hpp"
#include "base/number_text.hpp"
#include "base/output_file.hpp"
#include "base/result_folder.hpp"
#include "base/shell.hpp"
#include "base/table.hpp"
#include "policies/adapters/adapt.hpp"
#include "sim/replay/experiment.hpp"
#include "sim/replay/folder_store.hpp"
#include "sim/replay/marks.hpp"
#include "sim/replay/phase_columns.hpp"
#include "sim/replay/replay.hpp"
#include "sim/replay/results.hpp"
#include "sim/replay/seed_means.hpp"
#include "sim/replay/turn_rows.hpp"
#include "tools/kvreplay/cache_options.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/count_range.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {
namespace {

struct RunOptions {
  ExperimentOptions experiment;
  std::string out;
  TableView view;
  std::int64_t steps = 0;
  bool access_log = false;
  bool check = kChecksByDefault;
  bool says_checked = false;  ///< --check was given
  std::string timeline;
  std::int64_t timeline_steps = 3;
  // Options of a sweep.
  CacheOptions cache;
  std::string shard = "1/1";
  std::int64_t memory_bytes = 0;  ///< 0 = from the available memory
  bool plan = false;
  bool quiet = false;
};

/// No viewer opens a file with more cells.
constexpr std::size_t kTimelineCells = 16;

Experiment load_experiment(const RunOptions& options) {
  const std::vector<std::string> steps{"steps=" + std::to_string(options.steps)};
  Experiment experiment =
      options.experiment.request().load(options.steps > 0 ? steps : std::vector<std::string>{});
  check_view(options.view, result_names(experiment.swept));
  return experiment;
}

/// Of settings without effect. In the end: a mistake is one line, whatever else there is to say.
void warn_of_settings(const Experiment& experiment) {
  for (const std::string& note : experiment.notes) {
    std::cerr << "kvreplay: warning: " << note << '\n';
  }
}

void warn_of_marks(const Experiment& experiment, const ReplayResult& result,
                   const RunOptions& options) {
  for (const auto& lines : {mark_lines(experiment, result), wear_lines(result.cells)}) {
    for (const std::string& line : lines) {
      // A printed table says it above its numbers.
      if (options.view.format == "table" && line.starts_with("exceeds_dram")) continue;
      std::cerr << "kvreplay: warning: " << line << '\n';
    }
  }
}

void warn_of_own_text(const Experiment& experiment) {
  for (const std::string& trace : experiment.traces) {
    const std::vector<std::string> own = adapters_of_own_text(TraceReader(trace));
    if (own.empty()) continue;
    std::cerr << "kvreplay: warning: " << trace << ": adapters " << join(own)
              << " were made from the very text that is replayed, so their predictions look better "
                 "than they would on another text\n";
  }
}

/// Of `steps` beyond the end of a recording.
void warn_of_steps(const Experiment& experiment) {
  for (std::size_t i = 0; i < experiment.traces.size(); ++i) {
    std::int64_t asked = 0;
    for (const Cell& cell : experiment.cells) {
      if (cell.trace == i) asked = std::max(asked, cell.steps);
    }
    if (asked == 0) continue;
    const std::int64_t recorded = TraceReader(experiment.traces[i]).info().decode_steps();
    if (asked <= recorded) continue;
    std::cerr << "kvreplay: warning: " << experiment.traces[i] << ": steps is " << asked
              << ", and the recording has " << recorded << ", which are replayed\n";
  }
}

/// Checks the file of the timeline before any work. It is written last, possibly into the new
/// folder of results.
void check_timeline_folder(const RunOptions& options) {
  namespace fs = std::filesystem;
  if (options.timeline.empty()) return;
  const fs::path folder = fs::absolute(options.timeline).lexically_normal().parent_path();
  if (fs::is_directory(folder)) return;
  if (!options.out.empty() &&
      folder == fs::absolute(options.out + "/").lexically_normal().parent_path())
    return;
  throw UserError({"--timeline", ""}, "found " + options.timeline + ", in no folder that is there",
                  "a file in a folder that is there, or in that of --out");
}

void ask_for_timeline(const RunOptions& options, ReplayOptions& replay_options) {
  if (options.timeline.empty()) return;
  replay_options.timeline_steps = options.timeline_steps;
  replay_options.timeline_cells = kTimelineCells;
}

void write_timeline(const RunOptions& options, const ReplayResult& result) {
  if (options.timeline.empty()) return;
  write_text_file(options.timeline, trace_event_json(result.timelines));
  std::cerr << "kvreplay: timeline of " << result.timelines.size() << " of " << result.cells.size()
            << " cells in " << options.timeline << ", to open at ui.perfetto.dev\n";
}

ResultFolder result_folder(const RunOptions& options, const Experiment& experiment) {
  return options.out.empty() ? ResultFolder::numbered("results/" + experiment.name)
                             : ResultFolder::at(options.out);
}

/// The command as it was given, but for what does not decide the results: where they go, and how
/// they are shown.
std::string given_command(const RunOptions& options, const Experiment& experiment) {
  std::string text = "kvreplay run " + shell_word(options.experiment.name);
  for (const std::string& set : experiment.sets) text += " --set " + shell_word(set);
  const std::string& configs = options.experiment.configs.folder();
  if (configs != ConfigFolder::standard().folder()) text += " --configs " + shell_word(configs);
  if (options.access_log) text += " --access-log";
  if (options.says_checked) text += " --check";
  return text;
}

void write_all(const ResultFolder& folder, const RunOptions& options, const Experiment& experiment,
               const ReplayResult& result) {
  write_results(folder.temporary_path(), experiment, result);
  auto manifest = nlohmann::ordered_json::parse(manifest_json(experiment, result));
  manifest["command"] = given_command(options, experiment);
  folder.write({"manifest.json", manifest.dump(2) + '\n'});
}

/// Of several seeds, what results are is a mean with an interval.
void write_seeds(const ResultFolder& folder, const ReplayResult& result) {
  if (has_several_seeds(result.cells)) folder.write({"seeds.csv", seeds_csv(result.cells)});
}
void show_turns(const RunOptions& options, const ReplayResult& result) {
  const ResultTable turns = turn_rows(result.cells);
  if (options.view.format != "table" || turns.rows.empty()) return;
  std::cout << '\n' << view_text(turns, turn_view(turns)) << std::flush;
}
void show_seeds(const RunOptions& options, const ReplayResult& result) {
  if (options.view.format != "table" || !has_several_seeds(result.cells)) return;
  std::cout << '\n' << seeds_table(result.cells) << std::flush;
}

class Stopwatch {
 public:
  /// " (1.5 s, peak memory 310 MB)"
  [[nodiscard]] std::string text() const {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
    std::ostringstream text;
    text << " (" << std::fixed << std::setprecision(1) << elapsed.count() << " s, peak memory "
         << peak_memory_bytes() / 1000000 << " MB)";
    return text.str();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void run_experiment(const RunOptions& options) {
  const Stopwatch watch;
  const Experiment experiment = load_experiment(options);
  warn_of_own_text(experiment);
  warn_of_steps(experiment);
  check_timeline_folder(options);
  ResultFolder folder = result_folder(options, experiment);
  ReplayOptions replay_options;
  replay_options.show_progress = true;
  replay_options.check = options.check;
  if (options.access_log) {
    replay_options.access_log_folder = folder.temporary_path();
    replay_options.record_tokens = true;
  }
  ask_for_timeline(options, replay_options);
  const ReplayResult result = replay(experiment, replay_options);
  write_all(folder, options, experiment, result);
  write_seeds(folder, result);
  const std::string name = folder.commit();
  write_timeline(options, result);
  std::cout << view_text(result_rows(result.cells), options.view) << std::flush;
  show_turns(options, result);
  show_seeds(options, result);
  warn_of_settings(experiment);
  warn_of_marks(experiment, result, options);
  if (options.says_checked) {
    std::cerr << "kvreplay: checked every step of " << result.cells.size()
              << " cells: bytes, tokens, ranges on flash and budgets are as promised\n";
  }
  std::cerr << "kvreplay: results in " << name << watch.text() << '\n';
}

/// "2/8"
Shard shard_of(const std::string& text) {
  Shard shard;
  int end = 0;
  if (std::sscanf(text.c_str(), "%4zu/%4zu%n", &shard.index, &shard.count, &end) != 2 ||
      static_cast<std::size_t>(end) != text.size() || shard.index < 1 ||
      shard.index > shard.count) {
    throw UserError({"--shard", ""}, "found " + text, "I/N with I from 1 to N, such as 2/8");
  }
  return shard;
}

std::string seconds_text(double seconds) {
  return fixed_text(seconds, seconds < 10 ? 1 : 0) + " s";
}

void show_plan(const Replay& replay, const Experiment& experiment, const RunOptions& options) {
  static constexpr std::array<const char*, 3> kStages{"1 decide", "2 place", "3 time"};
  std::ostringstream text;
  text << replay.cells() << " cells";
  if (options.shard != "1/1") {
    text << " (shard " << options.shard << " of " << experiment.cells.size() << ")";
  }
  text << ", " << replay.finished_cells() << " finished before\n";
  constexpr auto kLeft = Table::Align::kLeft;
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"", kLeft, 17}, {"", kRight, 18}, {"", kRight, 19}, {"", kLeft}}, "");
  const std::array<StageCost, 3> costs = replay.costs();
  double seconds = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    table.add_row({std::string("  stage ") + kStages[i],
                   std::to_string(costs[i].outputs) + " different,",
                   std::to_string(costs[i].outputs - costs[i].stored) + " to compute",
                   ", about " + seconds_text(costs[i].seconds)});
    seconds += costs[i].seconds;
  }
  text << table.text(false) << "  about " << seconds_text(seconds) << " in all, by what "
       << (replay.rates_measured() ? "the last sweep with this cache" : "a server core")
       << " took, if nothing else runs on the " << replay.threads() << " threads\n";
  std::cerr << text.str();
}

/// Whether the cells of an experiment are of several such things, by name.
template <typename Spec>
bool are_several(const std::vector<Spec>& specs) {
  return std::any_of(specs.begin(), specs.end(),
                     [&](const Spec& spec) { return spec.name != specs.front().name; });
}

/// One short line per finished cell: what distinguishes it from the others, and its results.
std::string cell_line(const CellResult& cell, std::size_t number, const Experiment& experiment) {
  std::vector<std::string> words;
  if (experiment.traces.size() > 1) words.push_back(cell.trace);
  if (are_several(experiment.models)) words.push_back(cell.model);
  if (are_several(experiment.platforms)) words.push_back(cell.platform);
  if (are_several(experiment.devices)) words.push_back(cell.device);
  if (are_several(experiment.systems) || words.empty()) words.push_back(cell.system);
  const bool has_batches =
      std::any_of(experiment.cells.begin(), experiment.cells.end(),
                  [&](const Cell& other) { return other.batch != experiment.cells.front().batch; });
  if (has_batches) words.push_back("batch=" + std::to_string(cell.batch));
  for (const auto& [name, value] : cell.settings) {
    if (value) words.push_back(name.substr(name.rfind('.') + 1) + "=" + to_text(*value));
  }
  double latency_ns = 0;
  for (const StepTiming& step : cell.timing.steps) {
    latency_ns += static_cast<double>(step.latency_ns);
  }
  return std::to_string(number + 1) + "/" + std::to_string(experiment.cells.size()) + " " +
         join(words, " ") + ": " +
         fixed_text(latency_ns / 1e6 / static_cast<double>(cell.timing.steps.size()), 1) +
         " ms, mass " + fixed_text(cell.quality.attention_mass, 3);
}

void run_sweep(const RunOptions& options) {
  const Stopwatch watch;
  const Shard shard = shard_of(options.shard);
  const Experiment experiment = load_experiment(options);
  warn_of_own_text(experiment);
  warn_of_steps(experiment);
  check_timeline_folder(options);
  const ResultClaim claim(options.out);
  std::optional<FolderStore> store = options.cache.open();
  ReplayOptions replay_options;
  replay_options.show_progress = !options.quiet;
  replay_options.shard = shard;
  replay_options.memory_bytes = options.memory_bytes;
  if (store) replay_options.store = *store;
  ask_for_timeline(options, replay_options);
  replay_options.cell_line = [&](const CellResult& cell, std::size_t number) {
    return cell_line(cell, number, experiment);
  };
  std::optional<InterruptCleanup> interrupt(std::in_place, "", options.cache.left_by_interrupt());
  Replay replay(experiment, replay_options);
  if (!options.quiet || options.plan) show_plan(replay, experiment, options);
  if (options.plan) {
    warn_of_settings(experiment);
    return;
  }

  const ReplayResult result = replay.run();
  interrupt.reset();  // the folder of results has a cleanup of its own
  if (store && !store->problem().empty()) {
    std::cerr << "kvreplay: warning: nothing was kept: " << store->problem() << '\n';
  }
  ResultFolder folder = result_folder(options, experiment);
  write_all(folder, options, experiment, result);
  write_seeds(folder, result);
  if (shard.count > 1) write_shard(folder.temporary_path(), experiment, result, shard);
  const std::string name = folder.commit();
  write_timeline(options, result);
  std::cout << view_text(result_rows(result.cells), options.view) << std::flush;
  show_turns(options, result);
  show_seeds(options, result);
  warn_of_settings(experiment);
  warn_of_marks(experiment, result, options);
  std::cerr << "kvreplay: results in " << name << watch.text() << '\n';
}

void add_common_options(CLI::App& command, RunOptions& options) {
  command
      .add_option("EXPERIMENT", options.experiment.name,
                  "A file such as configs/experiments/first.json, or a name from `list "
                  "experiments`")
      ->required();
  command
      .add_option("--set", options.experiment.sets,
                  "Replace a member of the experiment, or a parameter of the systems, model, "
                  "platform or device that it names. A comma list or a range, as in "
                  "docs/experiments.md, gives one cell per value; sizes may have a unit "
                  "(64KiB). May be given again")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      .add_option("--out", options.out,
                  "New folder for the results (default: results/EXPERIMENT, numbered when taken)")
      ->type_name("DIR");
  add_view_options(command, options.view);
  add_threads_option(command, options.experiment.threads, "results do");
  command.add_option("--steps", options.steps, "Replay only the first N decode steps")
      ->transform(in_count_range(1, 1 << 30))
      ->type_name("N");
  add_configs_option(command, options.experiment.configs);
  command
      .add_option("--timeline", options.timeline,
                  "Also write a timeline of each layer's compute, reads and writes for "
                  "chrome://tracing and "
                  "ui.perfetto.dev: the first steps of the first 16 cells (docs/reports.md)")
      ->type_name("FILE");
  command
      .add_option("--timeline-steps", options.timeline_steps,
                  "Timed steps per cell in the timeline")
      ->check(in_range(1, 1000))
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace

void add_run(CLI::App& program) {
  CLI::App* command = program.add_subcommand("run", "Replay an experiment and compare its systems");
  auto options = std::make_shared<RunOptions>();
  add_common_options(*command, *options);
  command->add_flag("--access-log", options->access_log,
                    "Also write what each system selected at every step (HDF5)");
  command->add_flag_callback(
      "--check", [options] { options->check = options->says_checked = true; },
      "Hold every step against what docs/architecture.md promises: bytes, tokens, "
      "ranges on flash, budgets; slower, same results");
  command->footer(
      "A run keeps only its results; `kvreplay sweep` does the same with a cache.\n"
      "Examples:\n"
      "  kvreplay run configs/experiments/first.json\n"
      "  kvreplay run first --set device=emmc51 --set system.cache.capacity_groups=200\n"
      "  kvreplay run first --columns +dram_share,+recall --sort output_error\n"
      "  kvreplay run first --set system.kvswap.cache.part=lru --format csv > kvswap-lru.csv\n"
      "  kvreplay run first --out first --timeline first/timeline.json");
  command->callback([options] { run_experiment(*options); });
}

void add_sweep(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "sweep", "Replay an experiment, keep finished outputs, continue after an interrupt");
  auto options = std::make_shared<RunOptions>();
  add_common_options(*command, *options);
  options->cache.add_to(*command);
  command->add_flag("--no-cache", options->cache.none, "Neither keep nor look up outputs");
  command
      ->add_option("--shard", options->shard,
                   "Replay only part I of N of the cells; `kvreplay merge` joins the parts")
      ->type_name("I/N")
      ->capture_default_str();
  add_size_option(*command, "--memory", options->memory_bytes,
                  "Memory limit for access logs and I/O plans together, such as 4GiB "
                  "(default: four fifths of what is available)",
                  {.example = "4GiB", .min = 1 << 20});
  command->add_flag("--plan", options->plan,
                    "Only show what there is to compute, and how long it takes");
  command->add_flag("--quiet", options->quiet, "Do not show plan and progress");
  command->footer(
      "Examples:\n"
      "  kvreplay sweep first --set system.selection.budget_tokens=64,128,256\n"
      "  kvreplay sweep thousand --plan\n"
      "  kvreplay sweep thousand --shard 2/8 --out shard-2");
  command->callback([options] { run_sweep(*options); });
}

void add_merge(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("merge", "Join the shards of a sweep into the results of one run");
  struct MergeOptions {
    std::vector<std::string> shards;
    std::string out;
    TableView view;
  };
  auto options = std::make_shared<MergeOptions>();
  command->add_option("SHARDS", options->shards, "Folders that `kvreplay sweep --shard` made")
      ->required();
  command->add_option("--out", options->out, "New folder for the results")
      ->type_name("DIR")
      ->required();
  add_view_options(*command, options->view);
  command->callback([options] {
    ResultFolder folder = ResultFolder::at(options->out);
    const ResultTable cells = merge_shards(options->shards, folder.temporary_path());
    std::cout << view_text(cells, options->view);
    std::cerr << "kvreplay: results in " << folder.commit() << '\n';
  });
}

}  // namespace kvreplay
