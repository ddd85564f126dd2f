#include "sim/tuning/tuner.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/progress.hpp"
#include "sim/replay/results.hpp"
#include "sim/replay/stage_store.hpp"
#include "sim/replay/trace_hash.hpp"
#include "sim/tuning/evaluator.hpp"
#include "sim/tuning/tuning_report.hpp"
#include "traces/shipped.hpp"

namespace kvreplay {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAny = "any";

void check_known(const char* option, const char* kind, const std::vector<std::string>& keys,
                 const std::vector<std::string>& known) {
  for (const std::string& key : keys) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw unknown_name({option, ""}, kind, key, known);
    }
  }
}

/// Checks keys such as "precision" and "stream.sink_tokens".
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

SpaceOptions space_of(const TuneRequest& request) {
  return {request.system == kAny,
          {request.hold.begin(), request.hold.end()},
          {request.exclude.begin(), request.exclude.end()}};
}

/// The settings that choose the systems of the experiment: the start and the references.
std::vector<std::string> system_sets(const TuneRequest& request) {
  std::vector<std::string> names = request.against;
  if (request.system != kAny &&
      std::find(names.begin(), names.end(), request.system) == names.end()) {
    names.insert(names.begin(), request.system);
  }
  if (names.empty()) return {};
  return {"system=" + nlohmann::json(names).dump()};
}

/// Of the two traces that ship, the dialogue if the search is tuned on the story.
std::vector<std::string> default_validation(const std::string& tuned_on) {
  std::error_code ignored;
  if (!fs::equivalent(tuned_on, find_trace("story", {}), ignored)) return {};
  return {find_trace("dialogue", {})};
}

TuneRequest checked(TuneRequest request) {
  check_held(request.hold);
  check_excluded(request.exclude);
  return request;
}

}  // namespace

Tuner::Tuner(TuneRequest request)
    : request_(checked(std::move(request))),
      experiment_(request_.experiment.load(system_sets(request_))),
      cell_(common_cell(experiment_)),
      trace_(experiment_.traces[cell_.trace]),
      space_(trace_, space_of(request_)),
      validation_traces_(request_.validate ? *request_.validate
                                           : default_validation(experiment_.traces[cell_.trace])) {
  for (const std::string& trace : validation_traces_) static_cast<void>(TraceReader(trace));
  take_references();
}

bool Tuner::any_part() const {
  return request_.system == kAny;
}

std::string Tuner::name() const {
  return any_part() ? kAny : fs::path(request_.system).stem().string();
}

std::int64_t Tuner::work() const {
  return request_.search.evaluations + std::ssize(references_);
}

void Tuner::take_references() {
  for (const SystemSpec& system : experiment_.systems) {
    try {
      references_.emplace_back(system.name, space_.checked(composition_of(system)));
    } catch (const UserError& error) {
      if (!any_part() && system.name == name()) throw;
      left_out_.push_back(system.name + " is left out: " + error.what());
    }
  }
  if (references_.empty()) {
    throw UserError({experiment_.name, "system"}, "has no system that the trace allows", "one");
  }
}

const std::string* Tuner::reference_name(const Composition& composition) const {
  for (const auto& [name, of_reference] : references_) {
    if (of_reference == composition) return &name;
  }
  return nullptr;
}

Tuning Tuner::tune(StageStore& store, Progress* progress) const {
  const Evaluator evaluator(experiment_, cell_, store);
  std::map<Composition, TunedRow> rows;
  std::vector<Composition> order;
  std::int64_t number = 0;
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
      scores.push_back(cells[i] ? std::optional(request_.goal.score(*cells[i])) : std::nullopt);
      if (!cells[i]) continue;
      TunedRow row{systems[i].name, compositions[i]};
      row.reference = reference_name(compositions[i]) != nullptr;
      row.score = *scores.back();
      row.cell = *cells[i];
      if (rows.emplace(compositions[i], std::move(row)).second) order.push_back(compositions[i]);
    }
    if (progress != nullptr) progress->advance(std::ssize(compositions));
    return scores;
  };

  std::vector<Composition> starts;
  std::vector<Composition> others;
  for (const auto& [reference, composition] : references_) {
    const bool is_start = any_part() || reference == name();
    (is_start ? starts : others).push_back(composition);
  }
  static_cast<void>(evaluate(others));
  Tuning tuning;
  tuning.goal = request_.goal;
  std::map<Composition, std::int64_t> generations;
  for (const Evaluated& one : search(space_, starts, request_.search, evaluate)) {
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
  describe(tuning);
  judge(tuning, request_.best_by);
  return tuning;
}

void Tuner::describe(Tuning& tuning) const {
  const CellResult& cell = tuning.rows.front().cell;
  tuning.about = cell.model + " on " + cell.platform + " with " + cell.device + ", batch " +
                 std::to_string(cell.batch) + ", decisions from " + cell.trace;
  if (cell.projection != "none") tuning.about += " (" + cell.projection + ")";
  if (cell.synthetic) tuning.about += ". SYNTHETIC trace, generated and not recorded";
  const auto found = std::count_if(tuning.rows.begin(), tuning.rows.end(),
                                   [](const TunedRow& row) { return !row.reference; });
  tuning.space = (any_part() ? "parts and parameters" : "the parameters of " + name()) + ": " +
                 std::to_string(found) + " compositions beside " +
                 std::to_string(std::ssize(tuning.rows) - found) + " systems, search seed " +
                 std::to_string(request_.search.seed);
}

std::vector<Validation> Tuner::validate(const Tuning& tuning, StageStore& store) const {
  std::vector<Validation> validations;
  for (const std::string& trace : validation_traces_) {
    validations.push_back(validate_on(trace, tuning, store));
  }
  return validations;
}

Validation Tuner::validate_on(const std::string& trace, const Tuning& tuning,
                              StageStore& store) const {
  Validation validation{trace_name(trace), {}, ""};
  std::vector<std::string> sets = system_sets(request_);
  sets.push_back("trace=" + nlohmann::json(trace).dump());
  const Experiment experiment = request_.experiment.load(sets);
  const Evaluator evaluator(experiment, common_cell(experiment), store);
  std::vector<TunedRow> wanted;
  std::vector<SystemSpec> systems;
  for (std::size_t i = 0; i < tuning.rows.size(); ++i) {
    const TunedRow& row = tuning.rows[i];
    if (!row.on_front && !row.reference && i != tuning.best) continue;
    wanted.push_back(row);
    systems.push_back(system_of(row.composition, row.name));
  }
  const std::vector<std::optional<CellResult>> cells = evaluator.evaluate(systems);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!cells[i]) continue;
    TunedRow& row = validation.rows.emplace_back(std::move(wanted[i]));
    row.cell = *cells[i];
    row.score = request_.goal.score(row.cell);
  }
  if (validation.rows.empty()) {
    // The first error of one replay applies to all.
    try {
      static_cast<void>(replay(experiment));
    } catch (const UserError& error) {
      validation.problem = error.what();
    }
  }
  return validation;
}

std::vector<ResultFile> Tuner::files(const Tuning& tuning,
                                     const std::vector<Validation>& validations,
                                     const std::string& command, StageStore& store) const {
  std::vector<TunedRow> front = tuning.rows;
  std::erase_if(front, [](const TunedRow& row) { return !row.on_front; });
  const TunedRow& best = tuning.rows[tuning.best];
  std::vector<ResultFile> files{{"evaluated.csv", rows_csv(tuning.rows)},
                                {"front.csv", rows_csv(front)},
                                {"comparison.csv", comparison_csv(tuning)}};
  for (const Validation& validation : validations) {
    if (validation.rows.empty()) continue;
    files.push_back({"validation." + validation.trace + ".csv", rows_csv(validation.rows)});
  }
  files.push_back(
      {"best.json",
       system_file(best.composition, "Best by " + tuning.best_reason + ": " + tuning.about,
                   "kvreplay tune: " + tuning.space + "; limits: " + tuning.goal.limits_text())});
  files.push_back({"answer.txt", answer_text(tuning, validations)});
  files.push_back({"manifest.json", manifest(tuning, validations, command, store)});
  return files;
}

std::string Tuner::manifest(const Tuning& tuning, const std::vector<Validation>& validations,
                            const std::string& command, StageStore& store) const {
  ReplayResult result;
  const std::string& file = experiment_.traces[cell_.trace];
  result.traces.push_back({trace_name(file), trace_hash(file, store), trace_.synthetic()});
  nlohmann::ordered_json manifest =
      nlohmann::ordered_json::parse(manifest_json(experiment_, result));
  manifest["command"] = command;
  nlohmann::ordered_json& tune = manifest["tune"];
  tune["about"] = tuning.about;
  tune["space"] = tuning.space;
  tune["limits"] = tuning.goal.limits_text();
  tune["quality"] = tuning.goal.quality;
  tune["max_dram_bytes"] = tuning.goal.max_dram_bytes.value_or(0);
  tune["max_latency_ms"] = tuning.goal.max_latency_ms.value_or(0);
  tune["best"] = tuning.rows[tuning.best].name;
  tune["best_by"] = tuning.best_reason;
  tune["evaluations"] = request_.search.evaluations;
  tune["population"] = request_.search.population;
  tune["search_seed"] = request_.search.seed;
  tune["hold"] = request_.hold;
  tune["exclude"] = request_.exclude;
  tune["validated_on"] = nlohmann::ordered_json::array();
  for (const Validation& validation : validations) {
    if (validation.problem.empty()) tune["validated_on"].push_back(validation.trace);
  }
  return manifest.dump(2) + '\n';
}

}  // namespace kvreplay
