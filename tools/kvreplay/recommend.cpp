#include "sim/tuning/recommend.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/interrupt_cleanup.hpp"
#include "base/progress.hpp"
#include "base/shell.hpp"
#include "tools/kvreplay/cache_options.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {
namespace {

namespace fs = std::filesystem;

struct RecommendOptions {
  std::string command;
  ExperimentOptions experiment{.name = "tune"};
  std::vector<std::string> members;  ///< settings that --model, --device ... stand for
  std::string out;
  CacheOptions cache;
  std::int64_t context = 0;
  std::int64_t new_tokens = 0;
  int rounds = 2;
  // 0 = no limit.
  double min_tokens_per_s = 0;
  double max_ttft_s = 0;
  double max_next_ttft_s = 0;
  std::int64_t max_dram = 0;
  double max_output_error = 0;
  double min_years = 0;
};

/// "30s", "500ms", "2min", "30": in seconds.
std::string read_seconds(std::string& text) {
  std::string wrong = "found '" + text + "'; allowed: a time such as 30s, 500ms or 2min";
  std::size_t end = 0;
  double seconds = 0;
  try {
    seconds = std::stod(text, &end);
  } catch (const std::exception&) {
    return wrong;
  }
  const std::string unit = text.substr(end);
  if (unit == "ms") {
    seconds /= 1000;
  } else if (unit == "min") {
    seconds *= 60;
  } else if (unit != "s" && !unit.empty()) {
    return wrong;
  }
  if (!(seconds > 0 && seconds <= 1e9)) return wrong;
  text = std::to_string(seconds);
  return {};
}

RecommendRequest recommend_request(const RecommendOptions& options) {
  RecommendRequest request;
  request.experiment = options.experiment.request();
  std::vector<std::string>& sets = request.experiment.sets;
  sets.insert(sets.begin(), options.members.begin(), options.members.end());
  // Enough for the answer, in well under two minutes.
  sets.insert(sets.begin(), "steps=96");
  request.context_tokens = options.context;
  request.new_tokens = options.new_tokens;
  request.rounds = options.rounds;
  UserLimits& limits = request.limits;
  if (options.min_tokens_per_s > 0) limits.min_tokens_per_s = options.min_tokens_per_s;
  if (options.max_ttft_s > 0) limits.max_ttft_s = options.max_ttft_s;
  if (options.max_next_ttft_s > 0) limits.max_next_ttft_s = options.max_next_ttft_s;
  if (options.max_dram > 0) limits.max_dram_bytes = options.max_dram;
  if (options.max_output_error > 0) limits.max_output_error = options.max_output_error;
  if (options.min_years > 0) limits.min_years = options.min_years;
  return request;
}

/// The user's folder of kept outputs, or one for this run alone; and a place for cut traces.
class WorkingFolders {
 public:
  explicit WorkingFolders(const CacheOptions& cache)
      : folder_(fs::temp_directory_path() / ("kvreplay-recommend-" + std::to_string(::getpid()))),
        store_(cache.open()) {
    fs::create_directories(folder_);
    if (!store_) store_.emplace((folder_ / "stages").string(), cache.limit_bytes);
  }
  ~WorkingFolders() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  WorkingFolders(const WorkingFolders&) = delete;
  WorkingFolders& operator=(const WorkingFolders&) = delete;

  [[nodiscard]] StageStore& store() { return *store_; }
  [[nodiscard]] const fs::path& temporary() const { return folder_; }

 private:
  fs::path folder_;
  std::optional<FolderStore> store_;
};

void recommend(const RecommendOptions& options) {
  const Recommender recommender(recommend_request(options));
  const ResultClaim claim(options.out);
  WorkingFolders folders(options.cache);
  std::optional<InterruptCleanup> interrupt(std::in_place, folders.temporary(),
                                            options.cache.left_by_interrupt());
  std::optional<Progress> progress(std::in_place, "recommend", recommender.work());
  const Recommendation found =
      recommender.recommend(folders.store(), folders.temporary().string(), &*progress);
  progress.reset();
  interrupt.reset();
  for (const std::string& line : found.left_out) std::cerr << "kvreplay: " << line << '\n';
  std::cout << answer_text(found) << std::flush;
  if (options.out.empty()) return;
  ResultFolder folder = ResultFolder::at(options.out);
  folder.write_all(result_files(found, options.command));
  std::cerr << "kvreplay: results in " << folder.commit() << '\n';
}

std::string command_of(const CLI::App& command) {
  std::string text = "kvreplay recommend";
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_name() == "--out" || option->get_name() == "--threads") continue;
    for (const std::string& result : option->results()) {
      if (!option->get_positional()) text += ' ' + option->get_name();
      if (option->get_items_expected_max() > 0) text += ' ' + shell_word(result);
    }
  }
  return text;
}

void add_limits(CLI::App& command, RecommendOptions& options) {
  const std::string group = "Limits";
  const auto add = [&](const char* name, double& value, const char* help, const char* type) {
    command.add_option(name, value, help)
        ->check(in_range(1e-9, 1e9))
        ->type_name(type)
        ->group(group);
  };
  add("--min-tokens-per-s", options.min_tokens_per_s, "Decoded tokens per second, at least", "N");
  const auto add_time = [&](const char* name, double& value, const char* help) {
    command.add_option(name, value, help)
        ->transform(CLI::Validator(read_seconds, ""))
        ->type_name("TIME")
        ->group(group);
  };
  add_time("--max-ttft", options.max_ttft_s, "Time to the first token, such as 30s");
  add_time("--max-next-ttft", options.max_next_ttft_s,
           "Time to the first token of the next question, with the conversation read back or "
           "computed anew, whichever is faster");
  add_size_option(command, "--max-dram", options.max_dram,
                  "Memory for key-value management beside the weights, such as 200MB",
                  {.example = "200MB", .min = 1})
      ->group(group);
  add("--max-output-error", options.max_output_error,
      "Error of the attention output against full attention, such as 0.15", "ERROR");
  add("--min-years", options.min_years,
      "Years that the flash device must last (--set conversations_per_day=N)", "YEARS");
}

}  // namespace

void add_recommend(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "recommend", "Rank the shipped systems under your limits, and say what would help");
  auto options = std::make_shared<RecommendOptions>();
  const auto add_member = [&](const char* name, const char* member, const char* help) {
    command
        ->add_option_function<std::string>(
            name,
            [options, member](const std::string& value) {
              options->members.push_back(std::string(member) + "=" + value);
            },
            help)
        ->type_name("NAME");
  };
  add_member("--model", "model", "The model, from `list models` or a file");
  add_member("--platform", "platform", "The processor, from `list platforms` or a file");
  add_member("--device", "device", "The flash device, from `list devices` or a file");
  add_member("--trace", "trace", "The recording that decides (default: the shipped story)");
  command
      ->add_option("--context", options->context,
                   "Tokens of prompt and answer, such as 16K (default: those of the recording)")
      ->transform(CLI::Validator(read_count, ""))
      ->type_name("TOKENS");
  command
      ->add_option("--new-tokens", options->new_tokens,
                   "Tokens of the next question, whose wait is then an estimate (default: the last "
                   "turn of a recorded conversation, else 256)")
      ->transform(CLI::Validator(read_count, ""))
      ->check(in_range(std::int64_t{1}, std::int64_t{1} << 24))
      ->type_name("TOKENS");
  add_limits(*command, *options);
  command
      ->add_option("--experiment", options->experiment.name,
                   "Where the systems and their settings come from")
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--set", options->experiment.sets,
                   "Replace a member of the experiment, or a parameter")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--rounds", options->rounds,
                   "Rounds of the search for budgets: 0 = those that ship")
      ->check(in_range(0, 8))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--out", options->out,
                   "New folder for the answer, the ranking with all metrics, and the first system")
      ->type_name("DIR");
  add_threads_option(*command, options->experiment.threads, "results do");
  add_configs_option(*command, options->experiment.configs);
  options->cache.add_to(*command);
  command->add_flag("--no-cache", options->cache.none, "Neither keep nor look up outputs");
  command->footer(
      "Example:\n"
      "  kvreplay recommend --model llama3.2-3b --platform oneplus12 --device sd_a2 --context 16K "
      "\\\n"
      "      --min-tokens-per-s 3 --max-ttft 30s --max-next-ttft 5s --max-dram 200MB");
  command->callback([command, options] {
    options->command = command_of(*command);
    recommend(*options);
  });
}

}  // namespace kvreplay
