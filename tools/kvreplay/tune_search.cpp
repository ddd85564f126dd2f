// `kvreplay tune` as a search: from systems to compositions, their replays and the folder of
// results.

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/output_file.hpp"
#include "base/progress.hpp"
#include "base/size.hpp"
#include "sim/replay/folder_store.hpp"
#include "sim/replay/results.hpp"
#include "sim/replay/trace_hash.hpp"
#include "sim/tuning/evaluator.hpp"
#include "tools/kvreplay/interrupt_cleanup.hpp"
#include "tools/kvreplay/python_tool.hpp"
#include "tools/kvreplay/result_folder.hpp"
#include "tools/kvreplay/tune.hpp"
#include "traces/shipped.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAny = "any";

Goal goal_of(const TuneOptions& options) {
  Goal goal;
  goal.quality = options.quality;
  if (!options.max_dram.empty()) {
    goal.max_dram_bytes = parse_size(options.max_dram);
    if (!goal.max_dram_bytes || *goal.max_dram_bytes == 0) {
      throw UserError({"--max-dram", ""}, "found " + options.max_dram, "a size such as 310MiB");
    }
  }
  if (options.max_latency_ms > 0) goal.max_latency_ms = options.max_latency_ms;
  if (options.min_attention_mass > 0) goal.min_attention_mass = options.min_attention_mass;
  if (options.max_output_error > 0) goal.max_output_error = options.max_output_error;
  return goal;
}

void check_known(const char* option, const char* kind, const std::vector<std::string>& keys,
                 const std::vector<std::string>& known) {
  for (const std::string& key : keys) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw unknown_name({option, ""}, kind, key, known);
    }
  }
}

/// "precision", "stream.sink_tokens".
void check_held(const std::vector<std::string>& held) {
  std::vector<std::string> known;
  for (const Parameter& parameter : DecideSpec::stream_parameters()) {
    known.push_back("stream." + parameter.name);
  }
  for (const std::string& role : SystemSpec::roles()) known.push_back(role);
  for (const auto& [key, part] : part_catalogue()) {
    for (const Parameter& parameter : part.parameters) {
      known.push_back(key.first + "." + parameter.name);
    }
  }
  check_known("--hold", "part or parameter", held, known);
}

void check_excluded(const std::vector<std::string>& excluded) {
  std::vector<std::string> known;
  for (const auto& [key, part] : part_catalogue()) known.push_back(key.first + "/" + key.second);
  check_known("--exclude", "part", excluded, known);
}

SpaceOptions space_of(const TuneOptions& options) {
  check_held(options.hold);
  check_excluded(options.exclude);
  return {options.system == kAny,
          {options.hold.begin(), options.hold.end()},
          {options.exclude.begin(), options.exclude.end()}};
}

/// The settings that choose the systems of the experiment: the start and the references.
std::vector<std::string> system_sets(const TuneOptions& options) {
  std::vector<std::string> names = options.against;
  if (options.system != kAny &&
      std::find(names.begin(), names.end(), options.system) == names.end()) {
    names.insert(names.begin(), options.system);
  }
  if (names.empty()) return {};
  return {"system=" + nlohmann::json(names).dump()};
}

/// The traces to validate on. Of the two that ship, what is tuned on the story is by default
/// validated on the dialogue.
std::vector<std::string> validation_traces(const TuneOptions& options,
                                           const std::string& tuned_on) {
  if (options.no_validation) return {};
  std::vector<std::string> traces = options.validate;
  std::error_code ignored;
  if (traces.empty() && fs::equivalent(tuned_on, find_trace("story", {}), ignored)) {
    traces.push_back(find_trace("dialogue", {}));
  }
  for (const std::string& trace : traces) static_cast<void>(TraceReader(trace));
  return traces;
}

class SearchRun {
 public:
  explicit SearchRun(const TuneOptions& options)
      : options_(options),
        goal_(goal_of(options)),
        space_options_(space_of(options)),
        experiment_(load_experiment(options, system_sets(options))),
        cell_(common_cell(experiment_)),
        trace_(experiment_.traces[cell_.trace]),
        space_(trace_, space_options_),
        validation_traces_(validation_traces(options, experiment_.traces[cell_.trace])),
        store_(options.cache.open()) {
    if (!options.out.empty()) ResultFolder::check_free(options.out);
  }

  void run() {
    std::optional<InterruptCleanup> interrupt(std::in_place, "",
                                              options_.cache.left_by_interrupt());
    take_references();
    Tuning tuning = searched();
    judge(tuning, options_.best_by);
    const std::vector<Validation> validations = validated(tuning);
    interrupt.reset();  // the folder of results has its own
    write(tuning, validations);
  }

 private:
  /// A system that the trace does not allow is no reference; the one that is tuned must be allowed.
  void take_references() {
    for (const SystemSpec& system : experiment_.systems) {
      try {
        references_.push_back({system.name, space_.checked(composition_of(system))});
      } catch (const UserError& error) {
        if (system.name == tuned_name()) throw;
        std::cerr << "kvreplay: " << system.name << " is left out: " << error.what() << '\n';
      }
    }
    if (references_.empty()) {
      throw UserError({experiment_.name, "system"}, "has no system that the trace allows", "one");
    }
  }

  [[nodiscard]] std::string tuned_name() const {
    return options_.system == kAny ? "" : fs::path(options_.system).stem().string();
  }

  [[nodiscard]] StageStore& store() { return store_ ? *store_ : StageStore::none(); }

  Tuning searched() {
    const Evaluator evaluator(experiment_, cell_, store());
    std::map<Composition, TunedRow> rows;
    std::vector<Composition> order;
    std::int64_t number = 0;
    Progress progress("tune", options_.search.evaluations + std::ssize(references_));
    const auto evaluate = [&](std::span<const Composition> compositions) {
      std::vector<SystemSpec> systems;
      for (const Composition& composition : compositions) {
        const std::string* reference = reference_name(composition);
        systems.push_back(
            system_of(composition, reference ? *reference : "tuned-" + std::to_string(++number)));
      }
      std::vector<std::optional<Score>> scores;
      const std::vector<std::optional<CellResult>> cells = evaluator.evaluate(systems);
      for (std::size_t i = 0; i < cells.size(); ++i) {
        scores.push_back(cells[i] ? std::optional(goal_.score(*cells[i])) : std::nullopt);
        if (!cells[i]) continue;
        TunedRow row{systems[i].name, compositions[i]};
        row.reference = reference_name(compositions[i]) != nullptr;
        row.score = *scores.back();
        row.cell = *cells[i];
        if (rows.emplace(compositions[i], std::move(row)).second) order.push_back(compositions[i]);
      }
      progress.advance(std::ssize(compositions));
      return scores;
    };

    std::vector<Composition> starts;
    std::vector<Composition> others;
    for (const auto& [name, composition] : references_) {
      const bool is_start = options_.system == kAny || name == tuned_name();
      (is_start ? starts : others).push_back(composition);
    }
    static_cast<void>(evaluate(others));
    Tuning tuning;
    std::map<Composition, std::int64_t> generations;
    for (const Evaluated& one : search(space_, starts, options_.search, evaluate)) {
      generations[one.composition] = one.generation;
    }
    for (const Composition& composition : order) {
      tuning.rows.push_back(std::move(rows.at(composition)));
      tuning.rows.back().generation = generations[composition];
    }
    if (tuning.rows.empty()) {
      throw UserError({experiment_.name, "system"}, "has no system that can be replayed",
                      "one: `kvreplay run` says what is wrong");
    }
    tuning.goal = goal_;
    describe(tuning);
    return tuning;
  }

  [[nodiscard]] const std::string* reference_name(const Composition& composition) const {
    for (const auto& [name, of_reference] : references_) {
      if (of_reference == composition) return &name;
    }
    return nullptr;
  }

  void describe(Tuning& tuning) const {
    const CellResult& cell = tuning.rows.front().cell;
    tuning.about = cell.model + " on " + cell.platform + " with " + cell.device + ", batch " +
                   std::to_string(cell.batch) + ", decisions from " + cell.trace;
    if (cell.projection != "none") tuning.about += " (" + cell.projection + ")";
    if (cell.synthetic) tuning.about += ". SYNTHETIC trace, generated and not recorded";
    const auto found = std::count_if(tuning.rows.begin(), tuning.rows.end(),
                                     [](const TunedRow& row) { return !row.reference; });
    tuning.space =
        (options_.system == kAny ? "parts and parameters" : "the parameters of " + tuned_name()) +
        ": " + std::to_string(found) + " compositions beside " +
        std::to_string(std::ssize(tuning.rows) - found) + " systems, search seed " +
        std::to_string(options_.search.seed);
  }

  // --- Validation ---

  std::vector<Validation> validated(const Tuning& tuning) {
    std::vector<Validation> validations;
    for (const std::string& trace : validation_traces_) {
      validations.push_back(validated_on(trace, tuning));
    }
    return validations;
  }

  Validation validated_on(const std::string& trace, const Tuning& tuning) {
    Validation validation{trace_name(trace), {}, ""};
    std::vector<std::string> sets = system_sets(options_);
    sets.push_back("trace=" + nlohmann::json(trace).dump());
    const Experiment experiment = load_experiment(options_, sets);
    const Evaluator evaluator(experiment, common_cell(experiment), store());
    std::vector<SystemSpec> systems;
    for (std::size_t i = 0; i < tuning.rows.size(); ++i) {
      const TunedRow& row = tuning.rows[i];
      if (!row.on_front && !row.reference && i != tuning.best) continue;
      validation.rows.push_back(row);
      systems.push_back(system_of(row.composition, row.name));
    }
    const std::vector<std::optional<CellResult>> cells = evaluator.evaluate(systems);
    std::vector<TunedRow> replayed;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!cells[i]) continue;
      TunedRow& row = replayed.emplace_back(std::move(validation.rows[i]));
      row.cell = *cells[i];
      row.score = goal_.score(row.cell);
    }
    validation.rows = std::move(replayed);
    if (validation.rows.empty()) {
      // What one replay says, it says of all.
      try {
        static_cast<void>(replay(experiment));
      } catch (const UserError& error) {
        validation.problem = error.what();
      }
    }
    return validation;
  }

  // --- Results ---

  void write(const Tuning& tuning, const std::vector<Validation>& validations) {
    ResultFolder folder =
        options_.out.empty()
            ? ResultFolder::numbered("results/tune-" +
                                     (options_.system == kAny ? std::string(kAny) : tuned_name()))
            : ResultFolder::at(options_.out);
    const auto write = [&](const std::string& name, const std::string& text) {
      write_text_file((fs::path(folder.temporary_path()) / name).string(), text);
    };
    write("evaluated.csv", rows_csv(tuning.rows));
    std::vector<TunedRow> front = tuning.rows;
    std::erase_if(front, [](const TunedRow& row) { return !row.on_front; });
    write("front.csv", rows_csv(front));
    write("comparison.csv", comparison_csv(tuning));
    for (const Validation& validation : validations) {
      if (!validation.rows.empty()) {
        write("validation." + validation.trace + ".csv", rows_csv(validation.rows));
      }
    }
    const TunedRow& best = tuning.rows[tuning.best];
    write("best.json",
          system_file(best.composition, "Best by " + tuning.best_reason + ": " + tuning.about,
                      "kvreplay tune: " + tuning.space + "; limits: " + goal_.limits_text()));
    const std::string answer = answer_text(tuning, validations);
    write("answer.txt", answer);
    write("manifest.json", manifest(tuning, validations));
    try {
      run_python_tool("plot_tuning", std::vector<std::string>{folder.temporary_path()});
    } catch (const UserError& error) {
      std::cerr << "kvreplay: warning: no figure: " << error.what() << '\n';
    }
    const std::string name = folder.commit();
    if (store_ && !store_->problem().empty()) {
      std::cerr << "kvreplay: warning: nothing was kept: " << store_->problem() << '\n';
    }
    std::cout << answer << std::flush;
    std::cerr << "kvreplay: results in " << name << '\n';
  }

  [[nodiscard]] std::string manifest(const Tuning& tuning,
                                     const std::vector<Validation>& validations) {
    ReplayResult result;
    const std::string& file = experiment_.traces[cell_.trace];
    result.traces.push_back({trace_name(file), trace_hash(file, store()), trace_.synthetic()});
    nlohmann::ordered_json manifest =
        nlohmann::ordered_json::parse(manifest_json(experiment_, result));
    manifest["command"] = options_.command;
    nlohmann::ordered_json& tune = manifest["tune"];
    tune["about"] = tuning.about;
    tune["space"] = tuning.space;
    tune["limits"] = goal_.limits_text();
    tune["quality"] = goal_.quality;
    tune["max_dram_bytes"] = goal_.max_dram_bytes.value_or(0);
    tune["max_latency_ms"] = goal_.max_latency_ms.value_or(0);
    tune["best"] = tuning.rows[tuning.best].name;
    tune["best_by"] = tuning.best_reason;
    tune["evaluations"] = options_.search.evaluations;
    tune["population"] = options_.search.population;
    tune["search_seed"] = options_.search.seed;
    tune["hold"] = options_.hold;
    tune["exclude"] = options_.exclude;
    tune["validated_on"] = nlohmann::ordered_json::array();
    for (const Validation& validation : validations) {
      if (validation.problem.empty()) tune["validated_on"].push_back(validation.trace);
    }
    return manifest.dump(2) + '\n';
  }

  const TuneOptions& options_;
  const Goal goal_;
  const SpaceOptions space_options_;
  const Experiment experiment_;
  const Cell cell_;
  const TraceReader trace_;
  const SearchSpace space_;
  const std::vector<std::string> validation_traces_;
  std::optional<FolderStore> store_;
  std::vector<std::pair<std::string, Composition>> references_;
};

}  // namespace

void tune_search(const TuneOptions& options) {
  SearchRun(options).run();
}

}  // namespace kvreplay
