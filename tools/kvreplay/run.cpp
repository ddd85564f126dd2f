#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "policies/adapt.hpp"
#include "sim/experiment.hpp"
#include "sim/replay.hpp"
#include "sim/results.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/peak_memory.hpp"
#include "tools/kvreplay/result_folder.hpp"

namespace kvreplay {
namespace {

using Format = std::string (*)(std::span<const CellResult>);
const std::map<std::string, Format> kFormats{
    {"table", results_table}, {"json", results_json}, {"csv", results_csv}};

struct RunOptions {
  std::string experiment;
  std::vector<std::string> sets;
  std::string out;
  std::string format = "table";
  std::int64_t threads = 0;
  std::int64_t steps = 0;
  bool access_log = false;
  std::string configs;
};

void run_experiment(RunOptions options) {
  const auto begin = std::chrono::steady_clock::now();
  const ConfigFolder configs =
      options.configs.empty() ? ConfigFolder::standard() : ConfigFolder(options.configs);
  if (options.threads > 0) options.sets.push_back("threads=" + std::to_string(options.threads));
  if (options.steps > 0) options.sets.push_back("steps=" + std::to_string(options.steps));
  const std::string file = configs.file("experiments", options.experiment, {});
  const Experiment experiment = Experiment::load(file, options.sets, configs);
  for (const std::string& trace : experiment.traces) {
    const std::vector<std::string> own = adapters_of_own_text(TraceReader(trace));
    if (own.empty()) continue;
    std::cerr << "kvreplay: warning: " << trace << ": adapters " << join(own)
              << " were made from the very text that is replayed; what they predict looks better "
                 "than it would on another text\n";
  }

  ResultFolder folder = options.out.empty() ? ResultFolder::numbered("results/" + experiment.name)
                                            : ResultFolder::at(options.out);
  ReplayOptions replay_options;
  replay_options.show_progress = true;
  if (options.access_log) {
    replay_options.access_log_folder = folder.temporary_path();
    replay_options.record_tokens = true;
  }
  const ReplayResult result = replay(experiment, replay_options);
  write_results(folder.temporary_path(), experiment, result);
  const std::string name = folder.commit();

  std::cout << kFormats.at(options.format)(result.cells) << std::flush;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  std::cerr << "kvreplay: results in " << name << " (" << std::fixed << std::setprecision(1)
            << elapsed.count() << " s, peak memory " << peak_memory_bytes() / 1000000 << " MB)\n";
}

}  // namespace

void add_run(CLI::App& program) {
  CLI::App* command = program.add_subcommand("run", "Replay an experiment and compare its systems");
  auto options = std::make_shared<RunOptions>();
  command
      ->add_option("EXPERIMENT", options->experiment,
                   "A file such as configs/experiments/first.json, or a name from `list "
                   "experiments`")
      ->required();
  command
      ->add_option("--set", options->sets,
                   "Replace a member of the experiment, or a parameter of the systems, model, "
                   "platform or device that it names; may be given again")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--out", options->out,
                   "New folder for the results (default: results/EXPERIMENT, numbered when taken)")
      ->type_name("DIR");
  command->add_option("--format", options->format, "What to print")
      ->check(CLI::IsMember(kFormats))
      ->type_name("table|json|csv")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads; results do not depend on it")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->add_option("--steps", options->steps, "Replay only the first N decode steps")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command->add_flag("--access-log", options->access_log,
                    "Also write what each system selected at every step, as HDF5");
  command->add_option("--configs", options->configs, "Where names are looked up")->type_name("DIR");
  command->footer(
      "Examples:\n"
      "  kvreplay run configs/experiments/first.json\n"
      "  kvreplay run first --set device=emmc51 --set system.cache.capacity_groups=200\n"
      "  kvreplay run first --set system.kvswap.cache.part=lru --format csv > kvswap-lru.csv");
  command->callback([options] { run_experiment(*options); });
}

}  // namespace kvreplay
