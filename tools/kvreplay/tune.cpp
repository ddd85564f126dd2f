#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "base/error.hpp"
#include "base/interrupt_cleanup.hpp"
#include "base/progress.hpp"
#include "base/result_folder.hpp"
#include "base/shell.hpp"
#include "sim/tuning/kvswap_tuner.hpp"
#include "sim/tuning/tuner.hpp"
#include "sim/tuning/tuning_report.hpp"
#include "tools/kvreplay/cache_options.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/option_values.hpp"
#include "tools/kvreplay/python_tool.hpp"

namespace kvreplay {
namespace {

/// The arguments of all three modes, and then those of each.
struct TuneOptions {
  std::string command;  ///< the command without threads, cache and folder of results
  ExperimentOptions experiment{.name = "tune"};
  std::vector<std::string> members;  ///< settings that --model, --device ... stand for
  std::string system;
  std::string out;
  CacheOptions cache;

  TuneRequest search{.exclude = {"grouping/global"}};
  std::int64_t max_dram = 0;  ///< for these limits, 0 = none
  double max_latency_ms = 0;
  double min_attention_mass = 0;
  double max_output_error = 0;
  std::vector<std::string> validate;
  bool no_validation = false;

  KvSwapRequest kvswap;

  std::string look_up;  ///< a solutions file
  std::int64_t batch = 1;
  std::int64_t context = 0;
};

constexpr const char* kSearchGroup = "Search";
constexpr const char* kSolverGroup = "KVSwap's tuner, with --budget-mib";
constexpr const char* kLookUpGroup = "A solution at run time";

/// Refuses an option that the chosen mode does not read.
void check_mode(const CLI::App& command, const TuneOptions& options) {
  const bool look_up = !options.look_up.empty();
  const std::string mode = look_up                         ? kLookUpGroup
                           : options.kvswap.budget_mib > 0 ? kSolverGroup
                                                           : kSearchGroup;
  const std::string named = look_up                         ? "with --look-up"
                            : options.kvswap.budget_mib > 0 ? "with --budget-mib"
                                                            : "without --budget-mib and --look-up";
  for (const CLI::Option* option : command.get_options()) {
    const std::string& group = option->get_group();
    const bool of_a_mode = group == kSearchGroup || group == kSolverGroup || group == kLookUpGroup;
    if (option->count() == 0 || group == mode || (!of_a_mode && !look_up)) continue;
    throw UserError({"tune", option->get_name()}, "has no meaning " + named,
                    "the options of \"" + mode + "\" (--help)");
  }
  if (options.kvswap.budget_mib > 0 && options.system == "any") {
    throw UserError({"tune", "--system"}, "found any with --budget-mib",
                    "the name of a system composed like kvswap");
  }
}

/// The command that reproduces the results, without where it runs, keeps and writes.
std::string command_text(const CLI::App& command) {
  static const std::set<std::string> kElsewhere{"--out",   "--threads",     "--configs",
                                                "--cache", "--cache-limit", "--no-cache"};
  std::string text = "kvreplay tune";
  for (const CLI::Option* option : command.get_options()) {
    const std::string& name = option->get_name();
    if (kElsewhere.contains(name)) continue;
    for (const std::string& result : option->results()) {
      if (!option->get_positional()) text += ' ' + name;
      if (option->get_items_expected_max() > 0) text += ' ' + shell_word(result);
    }
  }
  return text;
}

ExperimentRequest request_of(const TuneOptions& options) {
  ExperimentRequest request = options.experiment.request();
  request.sets.insert(request.sets.begin(), options.members.begin(), options.members.end());
  return request;
}

ResultFolder tuning_folder(const TuneOptions& options, const std::string& name) {
  return options.out.empty() ? ResultFolder::numbered("results/tune-" + name)
                             : ResultFolder::at(options.out);
}

TuneRequest search_request(const TuneOptions& options) {
  TuneRequest request = options.search;
  request.experiment = request_of(options);
  request.system = options.system;
  Goal& goal = request.goal;
  if (options.max_dram > 0) goal.max_dram_bytes = options.max_dram;
  if (options.max_latency_ms > 0) goal.max_latency_ms = options.max_latency_ms;
  if (options.min_attention_mass > 0) goal.min_attention_mass = options.min_attention_mass;
  if (options.max_output_error > 0) goal.max_output_error = options.max_output_error;
  if (options.no_validation) {
    request.validate.emplace();
  } else if (!options.validate.empty()) {
    request.validate = options.validate;
  }
  return request;
}

/// Searches compositions of parts and arguments, writes a folder of results, prints the answer.
void tune_search(const TuneOptions& options) {
  const Tuner tuner(search_request(options));
  std::optional<FolderStore> store = options.cache.open();
  StageStore& kept = store ? *store : StageStore::none();
  const ResultClaim claim(options.out);
  std::optional<InterruptCleanup> interrupt(std::in_place, "", options.cache.left_by_interrupt());
  for (const std::string& line : tuner.left_out()) std::cerr << "kvreplay: " << line << '\n';
  std::optional<Progress> progress(std::in_place, "tune", tuner.progress_units());
  const Tuning tuning = tuner.tune(kept, &*progress);
  const std::vector<Validation> validations = tuner.validate(tuning, kept, &*progress);
  progress.reset();
  interrupt.reset();  // the folder of results has a cleanup of its own

  ResultFolder folder = tuning_folder(options, tuner.name());
  folder.write_all(tuner.files(tuning, validations, options.command, kept));
  try {
    run_python_tool("plot_tuning", std::vector<std::string>{folder.temporary_path()});
  } catch (const UserError& error) {
    std::cerr << "kvreplay: warning: no figure: " << error.what() << '\n';
  }
  const std::string name = folder.commit();
  if (!kept.problem().empty()) {
    std::cerr << "kvreplay: warning: nothing was kept: " << kept.problem() << '\n';
  }
  std::cout << answer_text(tuning, validations) << std::flush;
  std::cerr << "kvreplay: results in " << name << "; to replay the best: kvreplay run "
            << shell_word(name + "/replay.json") << '\n';
}

/// A store of stages: the user's, or a temporary one.
class Store {
 public:
  explicit Store(const CacheOptions& options) : store_(options.open()) {
    if (store_) return;
    folder_ =
        std::filesystem::temp_directory_path() / ("kvreplay-tune-" + std::to_string(::getpid()));
    store_.emplace(folder_.string(), options.limit_bytes);
  }
  ~Store() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  [[nodiscard]] StageStore& get() { return *store_; }
  /// The folder of a temporary store; "" for the user's.
  [[nodiscard]] const std::filesystem::path& temporary_folder() const { return folder_; }

 private:
  std::optional<FolderStore> store_;
  std::filesystem::path folder_;
};

/// KVSwap's tuner: writes a folder with solutions.json, prints its table.
void tune_kvswap(const TuneOptions& options) {
  KvSwapRequest request = options.kvswap;
  request.experiment = request_of(options);
  request.system = options.system;
  const ResultClaim claim(options.out);
  const KvSwapTuner tuner(request);
  Store store(options.cache);
  std::optional<InterruptCleanup> interrupt(std::in_place, store.temporary_folder(),
                                            options.cache.left_by_interrupt());
  std::optional<Progress> progress(std::in_place, "solve", tuner.work());
  const KvSwapTuner::Solved solved = tuner.solve(store.get(), &*progress);
  progress.reset();
  interrupt.reset();  // the folder of results has a cleanup of its own

  ResultFolder folder = tuning_folder(options, tuner.name());
  folder.write_all(tuner.files(solved, options.command));
  const std::string name = folder.commit();
  if (solved.measured.synthetic) std::cout << "SYNTHETIC trace, generated and not recorded\n";
  std::cout << KvSwapTuner::table(solved) << std::flush;
  if (!solved.measured.stretched.empty()) {
    std::cerr << "kvreplay: at longer contexts, " << solved.measured.stretched << '\n';
  }
  std::cerr << "kvreplay: results in " << name << '\n';
}

/// Prints the system of the nearest solution.
void look_up(const TuneOptions& options) {
  if (options.context == 0) {
    throw UserError({"--context", ""}, "found none", "tokens such as 12K");
  }
  const LookedUpSolution found = look_up_solution(options.look_up, options.batch, options.context);
  const bool exact = found.batch == options.batch && found.context_tokens == options.context;
  std::cout << found.system;
  std::cerr << "kvreplay: " << (exact ? "the solution for " : "the nearest solution, for ")
            << "batch " << found.batch << ", context " << found.context_tokens << '\n';
}

void tune(const TuneOptions& options) {
  if (!options.look_up.empty()) {
    look_up(options);
  } else if (options.system.empty()) {
    throw UserError({"tune", "--system"}, "found none",
                    "the name of a system, or any, which also searches the parts");
  } else if (options.kvswap.budget_mib > 0) {
    tune_kvswap(options);
  } else {
    tune_search(options);
  }
}

void add_experiment_options(CLI::App& command, TuneOptions& options) {
  command
      .add_option(
          "EXPERIMENT", options.experiment.name,
          "An experiment with one trace, model, platform, device and batch: a file, or a name from "
          "`list experiments`")
      ->capture_default_str();
  command
      .add_option(
          "--system", options.system,
          "The system whose parameters are searched, or any: parts and parameters, starting from "
          "the experiment's systems")
      ->type_name("NAME");
  const auto add_member = [&](const char* name, const char* member, const char* help) {
    command
        .add_option_function<std::string>(
            name,
            [&options, member](const std::string& value) {
              options.members.push_back(std::string(member) + "=" + value);
            },
            help)
        ->type_name("NAME");
  };
  add_member("--model", "model", "As --set model=NAME");
  add_member("--platform", "platform", "As --set platform=NAME");
  add_member("--device", "device", "As --set device=NAME");
  add_member("--trace", "trace", "As --set trace=FILE");
  command
      .add_option("--set", options.experiment.sets,
                  "Replace a member of the experiment, or a parameter")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      .add_option("--out", options.out,
                  "New folder for the results (default: results/tune-SYSTEM, numbered when taken)")
      ->type_name("DIR");
  add_threads_option(command, options.experiment.threads, "results do");
  add_configs_option(command, options.experiment.configs);
  options.cache.add_to(command);
  command.add_flag("--no-cache", options.cache.none, "Neither keep nor look up outputs");
}

void add_search_options(CLI::App& command, TuneOptions& options) {
  const std::string group = kSearchGroup;
  command
      .add_option("--evaluations", options.search.search.evaluations,
                  "Compositions to evaluate in addition to those that the search starts from")
      ->check(in_range(1, 1000000))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--population", options.search.search.population,
                  "Parents kept and children made per generation")
      ->check(in_range(2, 10000))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--search-seed", options.search.search.seed,
                  "Seed of the search (that of policies is --set seed=)")
      ->check(seed_range())
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--quality", options.search.goal.quality,
          "Measure of fidelity: output_error also sees lost precision; attention_mass sees only "
          "which tokens were read")
      ->check(one_of(Goal::qualities()))
      ->type_name("output_error|attention_mass")
      ->capture_default_str()
      ->group(group);
  add_size_option(command, "--max-dram", options.max_dram,
                  "Limit of dram_kv_bytes, such as 310MiB (default: none)",
                  {.example = "310MiB", .min = 1})
      ->group(group);
  command
      .add_option("--max-latency-ms", options.max_latency_ms, "Limit of latency_ms (default: none)")
      ->check(in_range(1e-9, 1e9))
      ->type_name("MS")
      ->group(group);
  command
      .add_option("--min-attention-mass", options.min_attention_mass,
                  "Limit of attention_mass (default: none)")
      ->check(in_range(1e-6, 0.999999))
      ->type_name("SHARE")
      ->group(group);
  command
      .add_option("--max-output-error", options.max_output_error,
                  "Limit of output_error (default: none)")
      ->check(in_range(1e-9, 1e9))
      ->type_name("ERROR")
      ->group(group);
  command
      .add_option(
          "--best-by", options.search.best_by,
          "Which of the front is best: the lowest latency, the best quality, or balance, the "
          "one nearest to the best of each objective. auto: latency with a limit of "
          "quality, else quality with a limit of latency, else balance")
      ->check(one_of(best_rules()))
      ->type_name("auto|latency|quality|balance")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--against", options.search.against,
                  "Systems to compare with (default: the experiment's systems); with any, the "
                  "search starts "
                  "from them")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->group(group);
  command
      .add_option(
          "--comparison-share", options.search.comparison_share,
          "Share of the evaluations for parameters of the systems in the comparison, as many "
          "for each; 0: only as they ship")
      ->check(in_range(0.0, 1.0))
      ->type_name("SHARE")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--also-minimise", options.search.goal.also,
                  "Minimise although it has a limit; otherwise less than a limit is worth nothing")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("quality|latency|dram,...")
      ->group(group);
  takes_traces(
      command.add_option("--validate", options.validate,
                         "Traces to repeat the comparison on, without tuning (default: the "
                         "shipped dialogue, where the shipped story is tuned on)"))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("TRACE,...")
      ->group(group);
  command.add_flag("--no-validation", options.no_validation, "Do not validate")->group(group);
  command
      .add_option("--hold", options.search.hold,
                  "Parts (precision) or parameters (stream.sink_tokens) that stay as they are")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("KEY,...")
      ->group(group);
  command
      .add_option("--exclude", options.search.exclude,
                  "Parts that no composition may have; oracles are always excluded")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("ROLE/PART,...")
      ->capture_default_str()
      ->group(group);
}

void add_solver_options(CLI::App& command, TuneOptions& options) {
  const std::string group = kSolverGroup;
  command
      .add_option("--budget-mib", options.kvswap.budget_mib,
                  "Memory of KV management per sequence, over all layers, in MiB")
      ->check(in_range(1, 1 << 20))
      ->type_name("MIB")
      ->group(group);
  command
      .add_option("--max-context", options.kvswap.max_context,
                  "Longest context in tokens, such as 16K (K = 1024)")
      ->transform(CLI::Validator(read_count, ""))
      ->type_name("TOKENS")
      ->group(group);
  command.add_option("--max-batch", options.kvswap.max_batch, "Largest batch")
      ->check(in_range(1, 1024))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--alpha", options.kvswap.alpha,
                  "Share of the I/O time that may be exposed (ours)")
      ->check(in_range(0.0, 1.0))
      ->type_name("SHARE")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-group-tokens", options.kvswap.max_group_tokens,
                  "G_max; G takes the powers of two up to it (ours)")
      ->check(in_range(1, 65536))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-sigma", options.kvswap.max_sigma,
                  "sigma_max; sigma takes the powers of two up to it that the trace has an adapter "
                  "for")
      ->check(in_range(1, 65536))
      ->type_name("SIGMA")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--initial-reuse-tokens", options.kvswap.initial_reuse_tokens,
                  "Minimum tokens of the reuse buffer (ours; 0 = what a step selects)")
      ->check(in_range(0, 1 << 30))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--delta-tokens", options.kvswap.delta_tokens,
                  "Tokens by which the reuse buffer grows each time sigma is raised (ours; 0 = it "
                  "always takes all that the budget leaves)")
      ->check(in_range(0, 1 << 30))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group(group);
  const std::string look_up = kLookUpGroup;
  command
      .add_option("--look-up", options.look_up,
                  "Print the system of the solution for --batch and --context, or the nearest one")
      ->type_name("SOLUTIONS.json")
      ->group(look_up);
  command.add_option("--batch", options.batch, "Sequences decoded together")
      ->check(in_range(1, 4096))
      ->type_name("N")
      ->capture_default_str()
      ->group(look_up);
  command.add_option("--context", options.context, "Tokens, such as 12K")
      ->transform(CLI::Validator(read_count, ""))
      ->type_name("TOKENS")
      ->group(look_up);
}

}  // namespace

void add_tune(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "tune", "Search parts and parameters for quality, latency and memory; KVSwap's tuner");
  auto options = std::make_shared<TuneOptions>();
  add_experiment_options(*command, *options);
  add_search_options(*command, *options);
  add_solver_options(*command, *options);
  command->footer(
      "Examples:\n"
      "  kvreplay tune --system any --max-dram 16MiB\n"
      "  kvreplay tune first --system kvswap --device emmc51 --max-dram 64MiB --evaluations 100\n"
      "  kvreplay run results/tune-any/replay.json\n"
      "  kvreplay run first --set system=./results/tune-any/best.json --set device=emmc51\n"
      "  kvreplay tune --system kvswap --budget-mib 310 --max-context 16K --max-batch 8 --out "
      "kvswap\n"
      "  kvreplay tune --look-up kvswap/solutions.json --batch 3 --context 12K > mine.json\n"
      "docs/tuning.md describes what is searched and how to read the results.");
  command->callback([command, options] {
    check_mode(*command, *options);
    options->command = command_text(*command);
    tune(*options);
  });
}

}  // namespace kvreplay
