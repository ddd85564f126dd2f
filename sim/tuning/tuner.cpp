#include "sim/tuning/tuner.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/argument_json.hpp"
#include "base/progress.hpp"
#include "base/random.hpp"
#include "sim/replay/experiment_source.hpp"
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

/// The systems that an experiment names itself.
std::vector<std::string> systems_of(const ExperimentRequest& request) {
  const ExperimentSource source(request.configs.file("experiments", request.experiment, {}),
                                request.sets);
  std::vector<std::string> names;
  for (const ConfigNode& item : source.points.front().member("system").items()) {
    names.push_back(item.text());
  }
  return names;
}

/// The settings that choose the systems of the experiment: the start and the references.
std::vector<std::string> system_sets(const TuneRequest& request) {
  if (request.system == kAny && request.against.empty()) return {};
  std::vector<std::string> names =
      request.against.empty() ? systems_of(request.experiment) : request.against;
  const auto is_same = [&](const std::string& name) {
    return fs::path(name).stem() == fs::path(request.system).stem();
  };
  if (request.system != kAny) {
    std::erase_if(names, is_same);
    names.insert(names.begin(), request.system);
  }
  return {"system=" + nlohmann::json(names).dump()};
}

/// The file of a model, platform or device as its settings left it.
std::string config_text(const std::string& name, const std::string& title,
                        const nlohmann::json& members) {
  nlohmann::ordered_json json{{"name", name}, {"title", title}};
  for (const auto& [member, value] : members.items()) json[member] = value;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
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
  check_known("--also-minimise", "objective", request.goal.also, Goal::objective_names());
  return request;
}

/// Compositions that are replayed in one go while validating: between two of them, progress is
/// told.
constexpr std::size_t kTogether = 16;

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

std::int64_t Tuner::tries_per_reference() const {
  const auto tuned = std::ssize(references_) - (any_part() ? 0 : 1);
  if (tuned <= 0) return 0;
  return static_cast<std::int64_t>(request_.comparison_share *
                                   static_cast<double>(request_.search.evaluations)) /
         tuned;
}

std::int64_t Tuner::progress_units() const {
  // What is validated is known only after the search: a front of about the population.
  return work() + std::ssize(validation_traces_) *
                      (2 * std::ssize(references_) + request_.search.population);
}

namespace {

/// The rows of a search: each composition once, under a name.
class Rows {
 public:
  Rows(const Evaluator& evaluator, const Goal& goal, Progress* progress)
      : evaluator_(evaluator), goal_(goal), progress_(progress) {}

  /// Names a composition that is going to be evaluated, unless it has a name.
  void name(const Composition& composition, const std::string& name, const std::string& variant_of,
            bool reference) {
    named_.try_emplace(composition, Named{name, variant_of, reference});
  }

  /// Scores in the order of the compositions. One that was evaluated before is not again.
  std::vector<std::optional<Score>> evaluate(std::span<const Composition> compositions) {
    std::vector<SystemSpec> systems;
    std::vector<Composition> fresh;
    for (const Composition& composition : compositions) {
      if (rows_.contains(composition)) continue;
      fresh.push_back(composition);
      if (!known(composition)) {
        name(composition, "tuned-" + std::to_string(++number_), "", false);
      }
      systems.push_back(system_of(composition, named_.at(composition).name));
    }
    const std::vector<std::optional<CellResult>> cells = evaluator_.evaluate(systems, &refused_);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!cells[i]) continue;
      const Named& named = named_.at(fresh[i]);
      TunedRow row{named.name, fresh[i]};
      row.reference = named.reference;
      row.variant_of = named.variant_of;
      row.reached = goal_.objectives(*cells[i]);
      row.score = goal_.score(*cells[i]);
      row.cell = *cells[i];
      if (rows_.emplace(fresh[i], std::move(row)).second) order_.push_back(fresh[i]);
    }
    if (progress_ != nullptr) progress_->advance(std::ssize(fresh));
    std::vector<std::optional<Score>> scores;
    for (const Composition& composition : compositions) {
      const auto row = rows_.find(composition);
      scores.push_back(row == rows_.end() ? std::nullopt : std::optional(row->second.score));
    }
    return scores;
  }

  [[nodiscard]] bool known(const Composition& composition) const {
    return named_.contains(composition);
  }
  /// Those of a reference and its variants that none of them is better than.
  [[nodiscard]] std::vector<Composition> front_of(const std::string& reference) const {
    std::vector<const TunedRow*> own;
    for (const Composition& composition : order_) {
      const TunedRow& row = rows_.at(composition);
      if (row.name == reference || row.variant_of == reference) own.push_back(&row);
    }
    std::vector<Composition> front;
    for (const TunedRow* row : own) {
      const bool beaten = std::any_of(own.begin(), own.end(), [&](const TunedRow* other) {
        return better(other->score, row->score);
      });
      if (!beaten) front.push_back(row->composition);
    }
    return front;
  }
  /// The rows in the order of evaluation.
  std::vector<TunedRow> take() && {
    std::vector<TunedRow> rows;
    for (const Composition& composition : order_) rows.push_back(std::move(rows_.at(composition)));
    return rows;
  }
  [[nodiscard]] const std::map<std::string, std::string>& refused() const { return refused_; }

 private:
  struct Named {
    std::string name;
    std::string variant_of;
    bool reference = false;
  };
  const Evaluator& evaluator_;
  const Goal& goal_;
  Progress* progress_;
  std::map<Composition, Named> named_;
  std::map<Composition, TunedRow> rows_;
  std::vector<Composition> order_;
  std::map<std::string, std::string> refused_;
  std::int64_t number_ = 0;
};

}  // namespace

Tuning Tuner::tune(StageStore& store, Progress* progress) const {
  const Evaluator evaluator(experiment_, cell_, store);
  Rows rows(evaluator, request_.goal, progress);
  std::vector<Composition> references;  // the system that is tuned comes last
  std::ptrdiff_t others = 0;
  for (const auto& [name, composition] : references_) {
    rows.name(composition, name, "", true);
    const bool is_own = !any_part() && name == this->name();
    references.insert(is_own ? references.end() : references.begin() + others++, composition);
  }
  static_cast<void>(rows.evaluate(references));

  // Each system in the comparison gets as many tries of other parameters, one round after the
  // other.
  std::vector<Composition> starts;
  for (const auto& [name, composition] : references_) {
    if (!any_part() && name == this->name()) starts = {composition};
  }
  SpaceOptions own_parts = space_of(request_);
  own_parts.any_part = false;
  const SearchSpace parameters(trace_, own_parts);
  Random random(Random::derive(request_.search.seed, 1));
  std::int64_t left = request_.search.evaluations;
  for (std::int64_t round = 1; round <= tries_per_reference(); ++round) {
    std::vector<Composition> tries;
    for (const auto& [name, composition] : references_) {
      if (!any_part() && name == this->name()) continue;
      const std::vector<Composition> parents = rows.front_of(name);
      if (parents.empty()) continue;  // it cannot be replayed
      constexpr int kMutations = 200;
      for (int draw = 0; draw < kMutations; ++draw) {
        const Composition& parent = parents[random.below(parents.size())];
        const auto changes = static_cast<int>(1 + random.below(3));
        const auto child = parameters.accept(parameters.mutate(parent, changes, random));
        if (!child || rows.known(*child)) continue;
        rows.name(*child, name + "-tuned-" + std::to_string(round), name, false);
        tries.push_back(*child);
        break;
      }
    }
    static_cast<void>(rows.evaluate(tries));
    left -= std::ssize(tries);
  }
  if (any_part()) {
    for (const auto& [name, composition] : references_) {
      for (const Composition& start : rows.front_of(name)) starts.push_back(start);
    }
  }

  SearchOptions options = request_.search;
  options.evaluations = left;
  std::map<Composition, std::int64_t> generations;
  const auto evaluate = [&](std::span<const Composition> compositions) {
    return rows.evaluate(compositions);
  };
  for (const Evaluated& one : search(space_, starts, options, evaluate)) {
    generations[one.composition] = one.generation;
  }
  Tuning tuning;
  tuning.goal = request_.goal;
  tuning.refused = rows.refused();
  tuning.rows = std::move(rows).take();
  bool has_candidate = false;
  for (TunedRow& row : tuning.rows) {
    row.generation = generations[row.composition];
    if (!any_part() && row.name != this->name()) {
      row.candidate = !row.reference && row.variant_of.empty();
    }
    has_candidate |= row.candidate;
  }
  if (!has_candidate) {
    const std::string why =
        tuning.refused.empty() ? "" : " (" + tuning.refused.begin()->second + ")";
    throw UserError({experiment_.name, "system"}, "has no system that can be replayed" + why,
                    "one");
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
  if (cell.stretched_from_tokens > 0) tuning.about += "; " + stretched_text(cell);
  if (cell.synthetic) tuning.about += ". SYNTHETIC trace, generated and not recorded";
  const auto found = std::count_if(tuning.rows.begin(), tuning.rows.end(),
                                   [](const TunedRow& row) { return !row.reference; });
  tuning.space = (any_part() ? "parts and parameters" : "the parameters of " + name()) + ": " +
                 std::to_string(found) + " compositions beside " +
                 std::to_string(std::ssize(tuning.rows) - found) + " systems, " +
                 std::to_string(tries_per_reference()) +
                 " of them for each system in the comparison, search seed " +
                 std::to_string(request_.search.seed);
}

std::vector<Validation> Tuner::validate(const Tuning& tuning, StageStore& store,
                                        Progress* progress) const {
  std::vector<Validation> validations;
  for (const std::string& trace : validation_traces_) {
    validations.push_back(validate_on(trace, tuning, store, progress));
  }
  return validations;
}

Validation Tuner::validate_on(const std::string& trace, const Tuning& tuning, StageStore& store,
                              Progress* progress) const {
  Validation validation{trace_name(trace), {}, {}};
  std::vector<std::string> sets = system_sets(request_);
  sets.push_back("trace=" + nlohmann::json(trace).dump());
  const Experiment experiment = request_.experiment.load(sets);
  const Evaluator evaluator(experiment, common_cell(experiment), store);
  std::set<std::string> best_variants;
  for (const Comparison& one : comparisons(tuning.rows, tuning.goal)) {
    if (one.tuned != nullptr) best_variants.insert(one.tuned->name);
  }
  std::vector<TunedRow> wanted;
  std::vector<SystemSpec> systems;
  for (std::size_t i = 0; i < tuning.rows.size(); ++i) {
    const TunedRow& row = tuning.rows[i];
    if (!row.on_front && !row.reference && i != tuning.best && !best_variants.contains(row.name)) {
      continue;
    }
    wanted.push_back(row);
    systems.push_back(system_of(row.composition, row.name));
  }
  if (progress != nullptr) {
    const auto units = static_cast<double>(progress_units() - work()) /
                       static_cast<double>(std::ssize(validation_traces_));
    progress->begin_stage("validate", units / static_cast<double>(std::ssize(systems)));
  }
  for (std::size_t begin = 0; begin < systems.size(); begin += kTogether) {
    const std::size_t count = std::min(kTogether, systems.size() - begin);
    const std::vector<std::optional<CellResult>> cells =
        evaluator.evaluate(std::span(systems).subspan(begin, count), &validation.refused);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!cells[i]) continue;
      TunedRow& row = validation.rows.emplace_back(std::move(wanted[begin + i]));
      row.cell = *cells[i];
      row.reached = request_.goal.objectives(row.cell);
      row.score = request_.goal.score(row.cell);
    }
    if (progress != nullptr) progress->advance(static_cast<std::int64_t>(count));
  }
  return validation;
}

std::vector<ResultFile> Tuner::replay_files() const {
  const ModelSpec& model = experiment_.models[cell_.model];
  nlohmann::json of_model = to_json(model.arguments);
  of_model.update(nlohmann::json::parse(model.by_layer));
  const PlatformSpec& platform = experiment_.platforms[cell_.platform];
  const DeviceSpec& device = experiment_.devices[cell_.device];
  const nlohmann::ordered_json experiment{
      {"title", "Replays best.json as it was judged"},
      {"trace", fs::absolute(experiment_.traces[cell_.trace]).lexically_normal().string()},
      {"system", "./best.json"},
      {"model", "./judged.model.json"},
      {"platform", "./judged.platform.json"},
      {"device", "./judged.device.json"},
      {"batch", cell_.batch},
      {"seed", cell_.seed},
      {"steps", cell_.steps},
      {"timed_steps", cell_.timed_steps},
      {"warm_up_steps", cell_.warm_up_steps}};
  return {{"replay.json", experiment.dump(2) + '\n'},
          {"judged.model.json", config_text(model.name, model.title, of_model)},
          {"judged.platform.json",
           config_text(platform.name, platform.title, nlohmann::json::parse(platform.resolved()))},
          {"judged.device.json",
           config_text(device.name, device.title,
                       part_json(device.device.name(), device.device.arguments()))}};
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
  nlohmann::ordered_json system = nlohmann::ordered_json::parse(
      system_file(best.composition, "Best by " + tuning.best_reason + ": " + tuning.about,
                  "kvreplay tune: " + tuning.space + "; limits: " + tuning.goal.limits_text()));
  const std::string& trace = experiment_.traces[cell_.trace];
  system["judged_with"] = {{"experiment", experiment_.name},
                           {"trace", trace_name(trace)},
                           {"trace_sha256", trace_hash(trace, store)},
                           {"model", best.cell.model},
                           {"platform", best.cell.platform},
                           {"device", best.cell.device},
                           {"batch", best.cell.batch},
                           {"seed", cell_.seed},
                           {"output_error", best.cell.quality.output_error},
                           {"attention_mass", best.cell.quality.attention_mass},
                           {"latency_ms", best.reached[kLatency]},
                           {"dram_kv_bytes", best.reached[kDram]}};
  files.push_back({"best.json", system.dump(2) + '\n'});
  for (ResultFile& file : replay_files()) files.push_back(std::move(file));
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
  tune["comparison_share"] = request_.comparison_share;
  tune["tries_per_reference"] = tries_per_reference();
  tune["minimised"] = tuning.goal.minimised_text();
  tune["population"] = request_.search.population;
  tune["search_seed"] = request_.search.seed;
  tune["hold"] = request_.hold;
  tune["exclude"] = request_.exclude;
  tune["validated_on"] = nlohmann::ordered_json::array();
  for (const Validation& validation : validations) {
    if (!validation.rows.empty()) tune["validated_on"].push_back(validation.trace);
  }
  return manifest.dump(2) + '\n';
}

}  // namespace kvreplay
