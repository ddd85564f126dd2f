// `kvreplay tune --budget-mib`: KVSwap's tuner on replays of the trace, and its solutions at run
// time.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/output_file.hpp"
#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "base/size.hpp"
#include "sim/replay/folder_store.hpp"
#include "sim/replay/results.hpp"
#include "sim/replay/trace_hash.hpp"
#include "sim/tuning/evaluator.hpp"
#include "sim/tuning/kvswap_solver.hpp"
#include "tools/kvreplay/interrupt_cleanup.hpp"
#include "tools/kvreplay/result_folder.hpp"
#include "tools/kvreplay/tune.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
namespace {

constexpr const char* kFormat = "kvreplay kvswap solutions 2";

/// 1, 2, 4 ... times `unit`, from `least` on, below `most`; then `most`.
std::vector<std::int64_t> powers_up_to(std::int64_t least, std::int64_t most, std::int64_t unit) {
  std::vector<std::int64_t> powers;
  for (std::int64_t power = unit; power < most; power *= 2) {
    if (power >= least) powers.push_back(power);
  }
  powers.push_back(most);
  return powers;
}

Composition with_setting(const Composition& base, const KvSwapSetting& setting) {
  json object = json::parse(base);
  object["grouping"]["group_tokens"] = setting.group_tokens;
  object["scoring"]["sigma"] = setting.sigma;
  object["scoring"]["rank"] = 0;
  object["cache"]["capacity_groups"] = setting.capacity_groups;
  object["cache"]["capacity_bytes"] = 0;
  return object.dump();
}

/// The tuner knows the memory of these parts alone.
void check_parts(const SystemSpec& system) {
  const json object = json::parse(system.resolved());
  const auto expect = [&](const std::string& role, bool met, const std::string& allowed) {
    if (met) return;
    throw UserError({system.name, role},
                    "found '" + object.at(role).at("part").get<std::string>() + "'",
                    allowed + ": KVSwap's tuner is for systems made as kvswap is");
  };
  expect("grouping", system.decide.grouping.name() == "page", "page");
  expect("scoring", system.decide.scoring.name() == "low_rank", "low_rank");
  expect("selection", object["selection"].value("budget_tokens", 0) > 0,
         "a part with budget_tokens above 0");
  expect("precision", system.decide.precision.name() == "fp16", "fp16");
  expect("cache", object["cache"].contains("capacity_groups"), "a cache with capacity_groups");
}

/// A store of stages: the user's, or one that goes at the end.
class Store {
 public:
  explicit Store(const CacheOptions& options) : store_(options.open()) {
    if (store_) return;
    folder_ = fs::temp_directory_path() / ("kvreplay-tune-" + std::to_string(::getpid()));
    store_.emplace(folder_.string(), options.limit_bytes());
  }
  ~Store() {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  [[nodiscard]] FolderStore& get() { return *store_; }
  /// "" where it is the user's.
  [[nodiscard]] const fs::path& temporary_folder() const { return folder_; }

 private:
  std::optional<FolderStore> store_;
  fs::path folder_;
};

class KvSwapRun {
 public:
  explicit KvSwapRun(const TuneOptions& options)
      : options_(options), batches_(powers_up_to(1, options.max_batch, 1)) {
    if (options.max_context == 0) {
      throw UserError({"--max-context", ""}, "found none", "tokens such as 16K");
    }
    if (!options.out.empty()) ResultFolder::check_free(options.out);
    find_contexts();
    load();
    state_problem();
  }

  void run() {
    Store store(options_.cache);
    std::optional<InterruptCleanup> interrupt(std::in_place, store.temporary_folder(),
                                              options_.cache.left_by_interrupt());
    std::vector<std::optional<KvSwapSolution>> solved(cells_.size());
    {
      Progress progress("solve", std::ssize(cells_));
      parallel_for(std::ssize(cells_), threads_, [&](std::int64_t index) {
        const auto at = static_cast<std::size_t>(index);
        const Cell& cell = cells_[at];
        const Evaluator evaluator(experiment_, cell, store.get());
        solved[at] = solve_kvswap(problem_, cell.batch, context_of(cell),
                                  [&](const KvSwapSetting& setting, std::int64_t, std::int64_t) {
                                    return measure(evaluator, setting);
                                  });
        progress.advance();
      });
    }
    const std::string trace_sha256 = trace_hash(experiment_.traces.front(), store.get());
    interrupt.reset();  // the folder of results has its own
    write(solved, trace_sha256);
  }

 private:
  void find_contexts() {
    const Experiment plain = load_experiment(options_, {"system=" + json(options_.system).dump()});
    const Cell& cell = plain.cells.front();
    const TraceReader trace(plain.traces[cell.trace]);
    std::int64_t recorded = trace.info().tokens;
    if (cell.steps > 0) {
      recorded = std::min(recorded, trace.info().prompt_tokens + cell.steps);
    }
    if (options_.max_context < recorded) {
      throw UserError({"--max-context", ""}, "found " + std::to_string(options_.max_context),
                      "at least the " + std::to_string(recorded) +
                          " tokens of the recording (`kvreplay cut` shortens a trace)");
    }
    contexts_ = powers_up_to(recorded, options_.max_context, 1024);
  }

  void load() {
    experiment_ = load_experiment(
        options_, {"system=" + json(options_.system).dump(), "batch=" + json(batches_).dump(),
                   "model.context_tokens=" + json(contexts_).dump()});
    threads_ = experiment_.threads > 0 ? experiment_.threads : processor_count();
    experiment_.threads = 1;  // each (batch, context) has a thread of its own
    cells_ = experiment_.cells;
    if (cells_.size() != batches_.size() * contexts_.size()) {
      throw UserError({experiment_.name, ""},
                      "has several traces, models, platforms, devices or settings",
                      "one of each: choose by --set, such as --set device=ufs40");
    }
    const auto order = [&](const Cell& cell) { return std::pair(context_of(cell), cell.batch); };
    std::sort(cells_.begin(), cells_.end(),
              [&](const Cell& a, const Cell& b) { return order(a) < order(b); });
  }

  void state_problem() {
    const SystemSpec& system = experiment_.systems.front();
    check_parts(system);
    base_ = composition_of(system);
    const ModelSpec& model = experiment_.models.front();
    problem_.layers = model.layers;
    problem_.width = model.kv_heads * model.head_dim;
    problem_.entry_bytes = 4 * problem_.width;
    problem_.selected_tokens = json::parse(base_).at("selection").at("budget_tokens");
    problem_.landing_buffers = system.pipeline.make({})->landing_buffers();
    problem_.budget_bytes = options_.budget_mib << 20;
    problem_.alpha = options_.alpha;
    problem_.initial_reuse_tokens = options_.initial_reuse_tokens;
    problem_.delta_tokens = options_.delta_tokens;
    problem_.group_sizes = powers_up_to(1, options_.max_group_tokens, 1);
    // The trace's adapters say which sigma there is.
    const TraceReader trace(experiment_.traces.front());
    const SearchSpace space(trace, {});
    std::string refusal;
    for (const std::int64_t sigma : powers_up_to(1, options_.max_sigma, 1)) {
      try {
        static_cast<void>(space.checked(with_setting(base_, {sigma, 1, 1})));
        problem_.sigmas.push_back(sigma);
      } catch (const UserError& error) {
        refusal = error.what();
      }
    }
    if (problem_.sigmas.empty()) throw UserError(refusal);
  }

  [[nodiscard]] std::int64_t context_of(const Cell& cell) const {
    return experiment_.models[cell.model].context_tokens;
  }

  KvSwapMeasured measure(const Evaluator& evaluator, const KvSwapSetting& setting) {
    const SystemSpec system =
        system_of(with_setting(base_, setting), experiment_.systems.front().name);
    const std::optional<CellResult> cell = evaluator.evaluate(std::span(&system, 1)).front();
    if (!cell) {
      throw UserError({system.name, ""}, "a replay refuses sigma " + std::to_string(setting.sigma),
                      "what `kvreplay run` takes");
    }
    KvSwapMeasured measured;
    measured.latency_ms = metric(*cell, "latency_ms");
    measured.compute_ms = metric(*cell, "compute_ms");
    measured.exposed_io_ms = metric(*cell, "exposed_io_ms");
    measured.io_ms = measured.exposed_io_ms + metric(*cell, "hidden_io_ms");
    measured.reuse_rate = metric(*cell, "hit_rate");
    measured.attention_mass = metric(*cell, "attention_mass");
    measured.output_error = metric(*cell, "output_error");
    const std::lock_guard guard(mutex_);
    quality_[{setting.sigma, setting.group_tokens}] = measured;
    reuse_[setting] = measured.reuse_rate;
    about_ = *cell;
    return measured;
  }

  void write(const std::vector<std::optional<KvSwapSolution>>& solved,
             const std::string& trace_sha256) {
    ordered_json file{
        {"format", kFormat},
        {"system", ordered_json::parse(system_file(base_, experiment_.systems.front().title,
                                                   experiment_.systems.front().source))}};
    file["made_for"] = {{"model", experiment_.models.front().name},
                        {"platform", experiment_.platforms.front().name},
                        {"device", experiment_.devices.front().name},
                        {"trace", trace_name(experiment_.traces.front())},
                        {"trace_sha256", trace_sha256},
                        {"synthetic", about_.synthetic}};
    file["problem"] = {{"budget_bytes", problem_.budget_bytes},
                       {"layers", problem_.layers},
                       {"width", problem_.width},
                       {"entry_bytes", problem_.entry_bytes},
                       {"selected_tokens", problem_.selected_tokens},
                       {"landing_buffers", problem_.landing_buffers},
                       {"sigmas", problem_.sigmas},
                       {"group_sizes", problem_.group_sizes},
                       {"alpha", problem_.alpha},
                       {"initial_reuse_tokens", problem_.least_reuse_tokens()},
                       {"delta_tokens", problem_.delta_tokens}};
    file["solutions"] = ordered_json::array();
    file["without_solution"] = ordered_json::array();
    std::ostringstream table;
    table << "batch  context  G   sigma  C      memory_mib  latency_ms  compute_ms  io_ms   "
             "hidden_io  reuse  attention_mass\n"
          << std::fixed;
    for (std::size_t i = 0; i < solved.size(); ++i) {
      const std::int64_t context = context_of(cells_[i]);
      if (!solved[i]) {
        file["without_solution"].push_back(
            {{"batch", cells_[i].batch}, {"context_tokens", context}});
        table << std::left << std::setw(7) << cells_[i].batch << std::setw(9) << context
              << "does not fit into the budget, even at the largest sigma\n";
        continue;
      }
      file["solutions"].push_back(solution_json(*solved[i]));
      add_line(table, *solved[i]);
    }
    add_tables(file);
    if (file["solutions"].empty()) {
      throw UserError({"--budget-mib", ""}, "found " + std::to_string(options_.budget_mib),
                      "more: not even the smallest context fits at sigma " +
                          std::to_string(problem_.sigmas.back()));
    }
    ResultFolder folder =
        options_.out.empty()
            ? ResultFolder::numbered("results/tune-" + experiment_.systems.front().name)
            : ResultFolder::at(options_.out);
    const auto write = [&](const std::string& name, const std::string& text) {
      write_text_file((fs::path(folder.temporary_path()) / name).string(), text);
    };
    write("solutions.json", file.dump(2) + '\n');
    write("table.txt", table.str());
    ReplayResult result;
    result.traces.push_back(
        {trace_name(experiment_.traces.front()), trace_sha256, about_.synthetic});
    ordered_json manifest = ordered_json::parse(manifest_json(experiment_, result));
    manifest["command"] = options_.command;
    manifest["tune"] = {{"problem", file["problem"]},
                        {"max_group_tokens", options_.max_group_tokens},
                        {"max_sigma", options_.max_sigma},
                        {"max_context", options_.max_context},
                        {"max_batch", options_.max_batch}};
    write("manifest.json", manifest.dump(2) + '\n');
    const std::string name = folder.commit();
    if (about_.synthetic) std::cout << "SYNTHETIC trace, generated and not recorded\n";
    std::cout << table.str() << std::flush;
    std::cerr << "kvreplay: results in " << name << '\n';
  }

  [[nodiscard]] ordered_json solution_json(const KvSwapSolution& solution) const {
    const KvSwapMeasured& measured = solution.measured;
    return {{"batch", solution.batch},
            {"context_tokens", solution.context_tokens},
            {"sigma", solution.setting.sigma},
            {"rank", std::max<std::int64_t>(1, problem_.width / solution.setting.sigma)},
            {"group_tokens", solution.setting.group_tokens},
            {"capacity_groups", solution.setting.capacity_groups},
            {"memory_bytes", solution.memory_bytes},
            {"latency_ms", measured.latency_ms},
            {"compute_ms", measured.compute_ms},
            {"io_ms", measured.io_ms},
            {"exposed_io_ms", measured.exposed_io_ms},
            {"hidden_share", measured.hidden_share()},
            {"hidden", solution.hidden},
            {"reuse_rate", measured.reuse_rate},
            {"attention_mass", measured.attention_mass},
            {"output_error", measured.output_error}};
  }

  static void add_line(std::ostream& table, const KvSwapSolution& solution) {
    const KvSwapMeasured& measured = solution.measured;
    const auto column = [&](int width, int decimals, double value) {
      table << std::setw(width) << std::setprecision(decimals) << value;
    };
    table << std::left << std::setw(7) << solution.batch << std::setw(9) << solution.context_tokens
          << std::setw(4) << solution.setting.group_tokens << std::setw(7) << solution.setting.sigma
          << std::setw(7) << solution.setting.capacity_groups;
    column(12, 1, static_cast<double>(solution.memory_bytes) / 1048576);
    column(12, 2, measured.latency_ms);
    column(12, 2, measured.compute_ms);
    column(8, 2, measured.io_ms);
    column(11, 3, measured.hidden_share());
    column(7, 3, measured.reuse_rate);
    table << std::setprecision(4) << measured.attention_mass
          << (solution.hidden ? "" : "  (not hidden: the fastest that was tried)") << '\n';
  }

  /// What was measured on the way: sigma and G to quality, and with C to the reuse rate.
  void add_tables(ordered_json& file) const {
    ordered_json& quality = file["tables"]["quality"] = ordered_json::array();
    for (const auto& [key, measured] : quality_) {
      quality.push_back({{"sigma", key.first},
                         {"group_tokens", key.second},
                         {"attention_mass", measured.attention_mass},
                         {"output_error", measured.output_error}});
    }
    ordered_json& reuse = file["tables"]["reuse"] = ordered_json::array();
    for (const auto& [setting, rate] : reuse_) {
      reuse.push_back({{"sigma", setting.sigma},
                       {"group_tokens", setting.group_tokens},
                       {"capacity_groups", setting.capacity_groups},
                       {"reuse_rate", rate}});
    }
  }

  const TuneOptions& options_;
  std::vector<std::int64_t> batches_;
  std::vector<std::int64_t> contexts_;
  Experiment experiment_;
  int threads_ = 1;
  std::vector<Cell> cells_;  ///< by context, then batch
  Composition base_;
  KvSwapProblem problem_;

  std::mutex mutex_;  ///< of what follows
  std::map<std::pair<std::int64_t, std::int64_t>, KvSwapMeasured> quality_;
  std::map<KvSwapSetting, double> reuse_;
  CellResult about_;
};

/// A whole number of a solutions file.
std::int64_t whole(const ConfigNode& node, const std::string& name) {
  const Value value = node.at(name).argument().value;
  const auto* number = std::get_if<std::int64_t>(&value);
  if (number == nullptr || *number < 1) {
    throw UserError(node.at(name).place(), "found " + to_text(value), "an integer from 1");
  }
  return *number;
}

}  // namespace

void tune_kvswap(const TuneOptions& options) {
  KvSwapRun(options).run();
}

void look_up_solution(const TuneOptions& options) {
  if (options.context == 0) {
    throw UserError({"--context", ""}, "found none", "tokens such as 12K");
  }
  const ConfigNode file = ConfigNode::load(options.look_up);
  if (file.at("format").text() != kFormat) {
    throw UserError(file.at("format").place(), "found " + file.at("format").text(), kFormat);
  }
  std::vector<KvSwapSolution> solutions;
  for (const ConfigNode& node : file.at("solutions").items()) {
    KvSwapSolution& solution = solutions.emplace_back();
    solution.batch = whole(node, "batch");
    solution.context_tokens = whole(node, "context_tokens");
    solution.setting = {whole(node, "sigma"), whole(node, "group_tokens"),
                        whole(node, "capacity_groups")};
  }
  if (solutions.empty())
    throw UserError(file.at("solutions").place(), "found none", "at least one");
  const ConfigNode stated = file.at("problem");
  KvSwapProblem problem;
  problem.budget_bytes = whole(stated, "budget_bytes");
  problem.layers = whole(stated, "layers");
  problem.width = whole(stated, "width");
  problem.entry_bytes = whole(stated, "entry_bytes");
  problem.selected_tokens = whole(stated, "selected_tokens");
  problem.landing_buffers = whole(stated, "landing_buffers");
  const KvSwapSolution* found =
      nearest_solution(problem, solutions, options.batch, options.context);
  if (found == nullptr) {
    std::int64_t longest = 0;
    for (const KvSwapSolution& solution : solutions) {
      longest = std::max(longest, longest_context(problem, solution.setting));
    }
    throw UserError({"--context", ""}, "found " + std::to_string(options.context),
                    "up to " + std::to_string(longest) + ": no solution of " + options.look_up +
                        " fits its budget of " + size_text(problem.budget_bytes) +
                        " at a longer one");
  }
  const KvSwapSolution& nearest = *found;
  const bool exact = nearest.batch == options.batch && nearest.context_tokens == options.context;
  const std::string what = "batch " + std::to_string(nearest.batch) + ", context " +
                           std::to_string(nearest.context_tokens);
  const SystemSpec base = SystemSpec::parse(file.at("system"), "solution");
  std::cout << system_file(with_setting(composition_of(base), nearest.setting),
                           base.title + " (solution for " + what + ")", base.source);
  std::cerr << "kvreplay: " << (exact ? "the solution for " : "the nearest solution, for ") << what
            << '\n';
}

}  // namespace kvreplay
