#include "sim/tuning/recommend.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "base/progress.hpp"
#include "base/size.hpp"
#include "sim/replay/wear.hpp"
#include "sim/time/restore.hpp"
#include "sim/tuning/evaluator.hpp"
#include "sim/tuning/goal.hpp"
#include "traces/operations/cut.hpp"

namespace kvreplay {
namespace {

namespace fs = std::filesystem;

/// The best systems whose budgets are searched further, and those that changes are tried on.
constexpr std::size_t kSearchedFurther = 8;
constexpr std::size_t kTriedWithChanges = 4;
/// Of a question whose wait is estimated.
constexpr std::int64_t kNextTokens = 256;
/// Times the rate of the platform.
constexpr int kProcessors[] = {2, 4, 8, 16, 32};

double tokens_per_s(const CellResult& cell) {
  return metric(cell, "tokens_per_s");
}
double ttft_s(const CellResult& cell) {
  return static_cast<double>(cell.timing.prefill.ttft_ns) / 1e9;
}
double output_error(const CellResult& cell) {
  return cell.quality.output_error;
}
std::int64_t memory_bytes(const CellResult& cell) {
  return std::max(cell.timing.dram.kv_bytes(), cell.timing.prefill.dram_bytes);
}

/// "271 s", "0.4 s": two digits or more.
std::string short_text(double value) {
  return fixed_text(value, value < 1 ? 2 : value < 10 ? 1 : 0);
}

/// "MB" as users write it: 10^6 bytes.
std::string megabytes_text(double bytes) {
  return short_text(bytes / 1e6) + " MB";
}

std::string times_text(double ratio) {
  return ratio < 1.1 ? format_text("%.0f %% above", std::ceil(100 * (ratio - 1)))
                     : short_text(ratio) + " times";
}

/// What a change of budgets scales.
enum class Lever { kRead, kCache };

/// The parameters of a lever, by role and name.
bool belongs_to(Lever lever, const std::string& role, const std::string& name) {
  if (lever == Lever::kCache) return role == "cache" && name.starts_with("capacity_");
  static const std::set<std::string> kSelection{"budget_tokens", "budget_share", "groups"};
  static const std::set<std::string> kRetention{"budget_tokens", "capacity_tokens", "window_tokens",
                                                "heavy_share", "recent_share"};
  return (role == "selection" && kSelection.contains(name)) ||
         (role == "retention" && kRetention.contains(name));
}

template <typename Visit>
void for_lever(nlohmann::json& composition, Lever lever, Visit&& visit) {
  for (const char* role : {"selection", "retention", "cache"}) {
    if (!composition.contains(role)) continue;
    nlohmann::json& member = composition[role];
    // A window of prompt queries is no budget.
    const bool keeps_window = member.value("part", "") == "sinks_and_window";
    for (const auto& item : member.items()) {
      const std::string& name = item.key();
      nlohmann::json& value = item.value();
      if (!value.is_number() || value.get<double>() <= 0 || !belongs_to(lever, role, name)) {
        continue;
      }
      if (name == "window_tokens" && !keeps_window) continue;
      visit(std::string(role) + "." + name, value);
    }
  }
}

/// The composition with a lever's budgets multiplied; none where it has none, or where that is not
/// valid.
std::optional<Composition> scaled(const SearchSpace& space, const Composition& composition,
                                  Lever lever, double factor) {
  nlohmann::json object = nlohmann::json::parse(composition);
  for_lever(object, lever, [&](const std::string&, nlohmann::json& value) {
    if (value.is_number_integer()) {
      value = std::max<std::int64_t>(
          1, std::llround(static_cast<double>(value.get<std::int64_t>()) * factor));
    } else {
      value = std::min(1.0, value.get<double>() * factor);
    }
  });
  const std::optional<Composition> accepted = space.accept(object.dump());
  return accepted && *accepted != composition ? accepted : std::nullopt;
}

std::string budgets_text(const Composition& found, const Composition& shipped) {
  nlohmann::json now = nlohmann::json::parse(found);
  nlohmann::json before = nlohmann::json::parse(shipped);
  std::vector<std::string> texts;
  for (const Lever lever : {Lever::kRead, Lever::kCache}) {
    for_lever(now, lever, [&](const std::string& key, const nlohmann::json& value) {
      const std::size_t dot = key.find('.');
      const nlohmann::json& old = before[key.substr(0, dot)][key.substr(dot + 1)];
      texts.push_back(key + " " + value.dump() + (old == value ? "" : " (was " + old.dump() + ")"));
    });
  }
  return join(texts);
}

/// Prompt and replayed steps.
std::int64_t recorded_tokens(const TraceReader& trace, const Cell& cell) {
  const std::int64_t steps = trace.info().decode_steps();
  return trace.info().prompt_tokens + (cell.steps > 0 ? std::min(cell.steps, steps) : steps);
}

/// Replays of the search for budgets, at most.
std::size_t search_work(std::size_t systems, int rounds) {
  if (rounds == 0) return systems;
  return systems * 3 +
         std::min(systems, kSearchedFurther) * 2 * static_cast<std::size_t>(rounds - 1);
}

/// Replays of what would help, at most: halved contexts, devices, processors.
std::size_t changes_work(std::size_t devices) {
  constexpr std::size_t kContexts = 8;
  return (kContexts + devices + std::size(kProcessors)) * 2 * kTriedWithChanges;
}

/// The last turn of a replayed conversation; none where one turn was replayed.
std::optional<NextQuestion> last_turn(const CellResult& cell) {
  if (cell.timing.turns.size() < 2) return std::nullopt;
  const TurnTiming& turn = cell.timing.turns.back();
  const Prefill& prefill = turn.timing.prefill;
  const auto seconds = [](SimTime ns) { return static_cast<double>(ns) / 1e9; };
  return NextQuestion{
      .earlier_tokens = turn.earlier_tokens,
      .new_tokens = turn.new_tokens,
      .read_back_s = seconds(prefill.ttft_ns),
      .compute_anew_s = seconds(prefill.compute_ns + prefill.index_ns + turn.recompute_ns),
      .turn = std::ssize(cell.timing.turns)};
}

/// To two digits: systems that miss a limit by the same cause do not differ by the rest.
double violation(const UserLimits& limits, const Candidate& candidate) {
  double sum = 0;
  for (const MissedLimit& missed : missed_limits(limits, candidate)) sum += missed.excess;
  return std::stod(format_text("%.1e", sum));
}

}  // namespace

bool UserLimits::any() const {
  return min_tokens_per_s || max_ttft_s || max_next_ttft_s || max_dram_bytes || max_output_error ||
         min_years;
}

std::string UserLimits::text() const {
  std::vector<std::string> texts;
  if (min_tokens_per_s) {
    texts.push_back("at least " + shortest_text(*min_tokens_per_s) + " tokens per second");
  }
  if (max_ttft_s) {
    texts.push_back("the first token within " + shortest_text(*max_ttft_s) + " s");
  }
  if (max_next_ttft_s) {
    texts.push_back("that of the next question within " + shortest_text(*max_next_ttft_s) + " s");
  }
  if (max_dram_bytes) {
    texts.push_back("at most " + megabytes_text(static_cast<double>(*max_dram_bytes)) +
                    " of memory beside the weights");
  }
  if (max_output_error) {
    texts.push_back("an output error of at most " + shortest_text(*max_output_error));
  }
  if (min_years)
    texts.push_back("a flash device that lasts " + shortest_text(*min_years) + " years");
  return join(texts);
}

std::vector<MissedLimit> missed_limits(const UserLimits& limits, const Candidate& candidate) {
  const CellResult& cell = candidate.cell;
  std::vector<MissedLimit> missed;
  const auto at_most = [&](double found, std::optional<double> limit, auto&& text) {
    if (limit && found > *limit) {
      missed.push_back({text(times_text(found / *limit)), found / *limit - 1});
    }
  };
  if (limits.min_tokens_per_s && tokens_per_s(cell) < *limits.min_tokens_per_s) {
    const double ratio = *limits.min_tokens_per_s / tokens_per_s(cell);
    missed.push_back({short_text(tokens_per_s(cell)) + " tokens/s, " + short_text(100 / ratio) +
                          " % of what is asked for",
                      ratio - 1});
  }
  at_most(ttft_s(cell), limits.max_ttft_s, [&](const std::string& times) {
    return "first token after " + short_text(ttft_s(cell)) + " s, " + times + " the limit";
  });
  if (candidate.next) {
    const double next_s = candidate.next->ttft_s();
    at_most(next_s, limits.max_next_ttft_s, [&](const std::string& times) {
      return "that of the next question after " + short_text(next_s) + " s, " + times +
             " the limit";
    });
  }
  const auto memory = static_cast<double>(memory_bytes(cell));
  const std::optional<double> max_memory =
      limits.max_dram_bytes ? std::optional(static_cast<double>(*limits.max_dram_bytes))
                            : std::nullopt;
  at_most(memory, max_memory, [&](const std::string& times) {
    const bool of_prefill = cell.timing.prefill.dram_bytes > cell.timing.dram.kv_bytes();
    return megabytes_text(memory) + (of_prefill ? " during the prefill, " : " of memory, ") +
           times + " the limit";
  });
  at_most(output_error(cell), limits.max_output_error, [&](const std::string& times) {
    return "output error " + fixed_text(output_error(cell), 3) + ", " + times + " the limit";
  });
  const double years = wear_of(cell).years;
  if (limits.min_years && years < *limits.min_years) {
    missed.push_back({cell.device + " worn out in " + short_text(years) + " years",
                      *limits.min_years / years - 1});
  }
  return missed;
}

bool recommended_before(const UserLimits& limits, const Candidate& one, const Candidate& other) {
  const double misses_one = violation(limits, one);
  const double misses_other = violation(limits, other);
  if (misses_one != misses_other) return misses_one < misses_other;
  const CellResult& a = one.cell;
  const CellResult& b = other.cell;
  struct Property {
    bool limited;
    double a;
    double b;
  };
  const Property properties[] = {
      {limits.max_output_error.has_value(), output_error(a), output_error(b)},
      {limits.min_tokens_per_s.has_value(), -tokens_per_s(a), -tokens_per_s(b)},
      {limits.max_ttft_s.has_value(), ttft_s(a), ttft_s(b)},
      {limits.max_dram_bytes.has_value(), static_cast<double>(memory_bytes(a)),
       static_cast<double>(memory_bytes(b))},
      {false, a.timing.energy.total_nj(), b.timing.energy.total_nj()}};
  for (const Property& property : properties) {
    if (!property.limited && property.a != property.b) return property.a < property.b;
  }
  return false;
}

/// One recommendation in the making.
class Recommender::Search {
 public:
  Search(const RecommendRequest& request, StageStore& store, std::string temporary_folder,
         Progress* progress)
      : request_(request),
        limits_(request.limits),
        store_(store),
        temporary_folder_(std::move(temporary_folder)),
        progress_(progress),
        experiment_(load(sets_for(request.context_tokens, {}))),
        cell_(common_cell(experiment_)),
        trace_(experiment_.traces[cell_.trace]),
        space_(trace_, {}) {}

  Recommendation run() {
    Recommendation result;
    result.limits = limits_;
    take_systems(result.left_out);
    search_budgets();
    std::vector<RecommendedRow> rows;
    for (const Found& found : found_) {
      rows.push_back(row_of(found.name, found.best, found.shipped, *found.candidate));
    }
    result.rows = std::move(rows);
    describe(result);
    if (!result.rows.front().missed.empty()) find_changes(result);
    replay_next(result.rows.front());
    result.evaluations = evaluations_;
    return result;
  }

 private:
  struct Found {
    std::string name;
    Composition shipped;
    Composition best;
    std::optional<Candidate> candidate{};  ///< the best one, once it was replayed
  };
  struct Trial {
    std::size_t found = 0;
    Composition composition;
  };

  static std::vector<std::string> sets_for(std::int64_t context, std::vector<std::string> more) {
    if (context > 0) more.push_back("model.context_tokens=" + std::to_string(context));
    return more;
  }

  /// With all steps of a conversation where the limits ask for its last turn.
  [[nodiscard]] Experiment load(std::vector<std::string> sets) const {
    Experiment experiment = request_.experiment.load(sets);
    if (!limits_.max_next_ttft_s || request_.new_tokens > 0) return experiment;
    const TraceReader trace(experiment.traces[common_cell(experiment).trace]);
    if (request_.context_tokens > 0 || trace.info().turns().size() < 2) return experiment;
    sets.emplace_back("steps=0");
    return request_.experiment.load(sets);
  }

  [[nodiscard]] RecommendedRow row_of(const std::string& name, const Composition& composition,
                                      const Composition& shipped,
                                      const Candidate& candidate) const {
    return {name,           composition,    budgets_text(composition, shipped),
            candidate.cell, candidate.next, missed_limits(limits_, candidate)};
  }

  /// `context`: tokens of prompt and answer.
  [[nodiscard]] std::optional<NextQuestion> next_question(const Experiment& experiment,
                                                          const CellResult& result,
                                                          std::int64_t context) const {
    const Cell cell = common_cell(experiment);
    if (cell.batch != 1) return std::nullopt;
    if (request_.new_tokens == 0) {
      if (const std::optional<NextQuestion> turn = last_turn(result)) return turn;
    }
    Prefix prefix{.tokens = context,
                  .new_tokens = request_.new_tokens > 0 ? request_.new_tokens : kNextTokens};
    if (cell.prefill_chunk_tokens > 0) prefix.chunk_tokens = cell.prefill_chunk_tokens;
    const RestoreTimes times =
        restore_times(experiment.models[cell.model], experiment.platforms[cell.platform],
                      experiment.devices[cell.device], prefix);
    const double on_device = static_cast<double>(result.timing.live_bytes) /
                             static_cast<double>(std::max<std::int64_t>(1, times.bytes));
    const auto new_tokens_ns = static_cast<double>(times.new_tokens_ns);
    return NextQuestion{
        .earlier_tokens = prefix.tokens,
        .new_tokens = prefix.new_tokens,
        .read_back_s =
            std::max(new_tokens_ns, on_device * static_cast<double>(times.restore_ns)) / 1e9,
        .compute_anew_s = (new_tokens_ns + static_cast<double>(times.recompute_ns)) / 1e9};
  }

  std::vector<std::optional<Candidate>> evaluate(const Experiment& experiment,
                                                 const std::vector<Trial>& trials,
                                                 std::int64_t context) {
    const Evaluator evaluator(experiment, common_cell(experiment), store_);
    std::vector<SystemSpec> systems;
    for (const Trial& trial : trials) {
      systems.push_back(system_of(trial.composition, found_[trial.found].name));
    }
    evaluations_ += std::ssize(trials);
    std::vector<std::optional<Candidate>> candidates;
    for (std::optional<CellResult>& cell : evaluator.evaluate(systems)) {
      candidates.emplace_back();
      if (cell) candidates.back().emplace(*cell, next_question(experiment, *cell, context));
    }
    if (progress_ != nullptr) progress_->advance(std::ssize(trials));
    return candidates;
  }

  void take_systems(std::vector<std::string>& left_out) {
    std::vector<Trial> trials;
    for (const SystemSpec& system : experiment_.systems) {
      try {
        const Composition composition = space_.checked(composition_of(system));
        trials.push_back({found_.size(), composition});
        found_.push_back({system.name, composition, composition});
      } catch (const UserError& error) {
        left_out.push_back(system.name + " is left out: " + error.what());
      }
    }
    tell_time(Evaluator(experiment_, cell_, store_), trials);
    const std::vector<std::optional<Candidate>> candidates =
        evaluate(experiment_, trials, context_before());
    std::vector<Found> evaluated;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (!candidates[i]) continue;
      evaluated.push_back(std::move(found_[i]));
      evaluated.back().candidate = candidates[i];
    }
    found_ = std::move(evaluated);
    if (found_.empty()) {
      throw UserError({experiment_.name, "system"}, "has no system that can be replayed",
                      "one: `kvreplay run` says what is wrong");
    }
    sort();
  }

  /// Other budgets take as long as those that ship; what is tried beyond that is known only then.
  void tell_time(const Evaluator& evaluator, const std::vector<Trial>& trials) const {
    if (progress_ == nullptr || trials.empty()) return;
    std::vector<SystemSpec> systems;
    for (const Trial& trial : trials) {
      systems.push_back(system_of(trial.composition, found_[trial.found].name));
    }
    try {
      const double replays = static_cast<double>(search_work(systems.size(), request_.rounds));
      const double seconds =
          evaluator.seconds(systems) * replays / static_cast<double>(systems.size());
      progress_->say(format_text(
          "kvreplay: up to %.0f replays of %zu systems and their budgets: about %s s if nothing "
          "else runs; more, to find what would help, where none keeps to the limits",
          replays, systems.size(), short_text(seconds).c_str()));
    } catch (const UserError&) {  // of a system that evaluate() leaves out
    }
  }

  void sort() {
    std::stable_sort(found_.begin(), found_.end(), [&](const Found& a, const Found& b) {
      return recommended_before(limits_, *a.candidate, *b.candidate);
    });
  }

  /// What a system's limits ask for: less to read where it is slow, a cache of another size where
  /// memory is short or the device too slow, more to read where nothing stands against it.
  void add_moves(std::size_t number, double step, std::vector<Trial>& trials) {
    const Found& found = found_[number];
    const CellResult& cell = found.candidate->cell;
    const bool slow = limits_.min_tokens_per_s && tokens_per_s(cell) < *limits_.min_tokens_per_s;
    const bool large = limits_.max_dram_bytes && memory_bytes(cell) > *limits_.max_dram_bytes;
    std::vector<std::pair<Lever, double>> moves;
    if (slow) moves = {{Lever::kRead, 1 / step}, {Lever::kCache, step}};
    if (large) moves = {{Lever::kRead, 1 / step}, {Lever::kCache, 1 / step}};
    if (moves.empty()) moves = {{Lever::kRead, step}, {Lever::kCache, step}};
    for (const auto& [lever, factor] : moves) {
      const std::optional<Composition> moved = scaled(space_, found.best, lever, factor);
      if (moved && tried_.insert(*moved).second) trials.push_back({number, *moved});
    }
  }

  void search_budgets() {
    double step = 4;
    for (int round = 0; round < request_.rounds; ++round, step = std::sqrt(step)) {
      std::vector<Trial> trials;
      const std::size_t count =
          round == 0 ? found_.size() : std::min(found_.size(), kSearchedFurther);
      for (std::size_t i = 0; i < count; ++i) add_moves(i, step, trials);
      const std::vector<std::optional<Candidate>> candidates =
          evaluate(experiment_, trials, context_before());
      for (std::size_t i = 0; i < trials.size(); ++i) {
        Found& found = found_[trials[i].found];
        if (!candidates[i] || !recommended_before(limits_, *candidates[i], *found.candidate)) {
          continue;
        }
        found.best = trials[i].composition;
        found.candidate = candidates[i];
      }
      sort();
    }
  }

  void describe(Recommendation& result) const {
    const CellResult& cell = found_.front().candidate->cell;
    const std::int64_t context = context_before();
    result.about = cell.model + " on " + cell.platform + " with " + cell.device + ", " +
                   std::to_string(context) + " tokens";
    if (cell.batch != 1) result.about += ", " + std::to_string(cell.batch) + " sequences";
    result.about += "; decisions and output error from " + cell.trace;
    if (cell.stretched_from_tokens > 0) {
      result.about += " (" + std::to_string(cell.stretched_from_tokens) +
                      " tokens, of which a budget is a larger share: at the whole context expect "
                      "larger errors)";
    }
    if (cell.synthetic) result.about += ". SYNTHETIC trace, generated and not recorded";
  }

  /// The next question of a recorded conversation, where its last turn was not replayed yet.
  void replay_next(RecommendedRow& row) {
    if (!row.next || row.next->turn > 0 || request_.new_tokens > 0) return;
    if (request_.context_tokens > 0 || trace_.info().turns().size() < 2) return;
    const Experiment experiment = request_.experiment.load(sets_for(0, {"steps=0"}));
    const Evaluator evaluator(experiment, common_cell(experiment), store_);
    const std::vector<SystemSpec> systems{system_of(row.composition, row.system)};
    const std::optional<CellResult> whole = evaluator.evaluate(systems).front();
    ++evaluations_;
    if (!whole) return;
    if (const std::optional<NextQuestion> turn = last_turn(*whole)) row.next = turn;
  }

  /// The best systems in another case: the first of them that keeps to all limits.
  std::optional<RecommendedRow> try_case(const std::vector<std::string>& sets,
                                         std::int64_t context) {
    const Experiment experiment = load(sets);
    std::vector<Trial> trials;
    for (std::size_t i = 0; i < std::min(found_.size(), kTriedWithChanges); ++i) {
      trials.push_back({i, found_[i].best});
      if (found_[i].best != found_[i].shipped) trials.push_back({i, found_[i].shipped});
    }
    std::optional<RecommendedRow> best;
    std::optional<Candidate> best_candidate;
    const std::vector<std::optional<Candidate>> candidates = evaluate(experiment, trials, context);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const std::optional<Candidate>& tried = candidates[i];
      if (!tried || !missed_limits(limits_, *tried).empty()) continue;
      if (output_error(tried->cell) >= 1) continue;  // that of leaving the attention out
      if (best_candidate && !recommended_before(limits_, *tried, *best_candidate)) continue;
      const Found& found = found_[trials[i].found];
      best_candidate = tried;
      best = row_of(found.name, trials[i].composition, found.shipped, *tried);
    }
    return best;
  }

  void find_changes(Recommendation& result) {
    add_memory(result);
    std::optional<HelpfulChange> context = smaller_context();
    const bool cheap = context && 2 * context_after_ >= context_before();
    if (cheap) result.changes.push_back(*context);
    add_device(result);
    if (context && !cheap) result.changes.push_back(*context);
    add_processor(result);
  }

  /// More memory alone, of what was found.
  void add_memory(Recommendation& result) const {
    if (!limits_.max_dram_bytes) return;
    UserLimits without = limits_;
    without.max_dram_bytes.reset();
    const RecommendedRow* least = nullptr;
    for (const RecommendedRow& row : result.rows) {
      if (!missed_limits(without, {row.cell, row.next}).empty()) continue;
      if (output_error(row.cell) >= 1) continue;  // that of leaving the attention out
      if (row.cell.timing.dram.kv_bytes() + row.cell.timing.dram.weights_bytes >
          row.cell.platform_dram_bytes) {
        continue;
      }
      if (least == nullptr || memory_bytes(row.cell) < memory_bytes(least->cell)) least = &row;
    }
    if (least == nullptr) return;
    result.changes.push_back(
        {"more memory: " + megabytes_text(static_cast<double>(memory_bytes(least->cell))) +
             " in place of " + megabytes_text(static_cast<double>(*limits_.max_dram_bytes)),
         *least});
  }

  [[nodiscard]] std::int64_t context_before() const {
    return request_.context_tokens > 0 ? request_.context_tokens
                                       : trace_.info().prompt_tokens + trace_.info().decode_steps();
  }

  /// The longest of halved contexts. Below the recording's length, its last tokens alone.
  std::optional<HelpfulChange> smaller_context() {
    const std::int64_t recorded = recorded_tokens(trace_, cell_);
    const std::int64_t prompt = trace_.info().prompt_tokens;
    for (std::int64_t context = context_before() / 2; context >= 256; context /= 2) {
      std::vector<std::string> sets;
      if (context >= recorded) {
        sets = sets_for(context, {});
      } else {
        const std::int64_t kept = context - (recorded - prompt);
        if (kept < 64) break;
        const std::string file =
            (fs::path(temporary_folder_) / ("last-" + std::to_string(context) + ".kvtrace.h5"))
                .string();
        cut_trace(trace_, {.window_start = prompt - kept}, file);
        sets = {"model.context_tokens=0", "trace=" + nlohmann::json(file).dump()};
      }
      std::optional<RecommendedRow> row = try_case(sets, context);
      if (!row) continue;
      context_after_ = context;
      return HelpfulChange{"a smaller context: " + std::to_string(context) +
                               " tokens in place of " + std::to_string(context_before()),
                           std::move(*row)};
    }
    return std::nullopt;
  }

  /// The slowest other device that would do, by the tokens per second that it gives.
  void add_device(Recommendation& result) {
    std::optional<HelpfulChange> slowest;
    for (const std::string& name : request_.experiment.configs.names("devices")) {
      const std::string& device = found_.front().candidate->cell.device;
      if (name == device) continue;
      const std::vector<std::string> sets = sets_for(request_.context_tokens, {"device=" + name});
      const std::optional<RecommendedRow> row = try_case(sets, context_before());
      if (!row) continue;
      if (slowest && tokens_per_s(row->cell) >= tokens_per_s(slowest->row.cell)) continue;
      slowest = HelpfulChange{"a faster device: " + name + " in place of " + device, *row};
    }
    if (slowest) result.changes.push_back(std::move(*slowest));
  }

  void add_processor(Recommendation& result) {
    const Arguments& platform = experiment_.platforms[cell_.platform].arguments;
    for (const int factor : kProcessors) {
      const double rate = platform.real("compute_gflop_s") * factor;
      const std::vector<std::string> sets =
          sets_for(request_.context_tokens, {"platform.compute_gflop_s=" + shortest_text(rate)});
      std::optional<RecommendedRow> row = try_case(sets, context_before());
      if (!row) continue;
      result.changes.push_back({"a processor that computes " + std::to_string(factor) +
                                    " times as fast (" + shortest_text(rate) + " GFLOP/s)",
                                std::move(*row)});
      return;
    }
  }

  const RecommendRequest& request_;
  const UserLimits& limits_;
  StageStore& store_;
  std::string temporary_folder_;
  Progress* progress_;
  const Experiment experiment_;
  const Cell cell_;
  const TraceReader trace_;
  const SearchSpace space_;
  std::vector<Found> found_;  // best first, once evaluated
  std::set<Composition> tried_;
  std::int64_t context_after_ = 0;
  std::int64_t evaluations_ = 0;
};

Recommender::Recommender(RecommendRequest request) : request_(std::move(request)) {
  const Experiment experiment = request_.experiment.load();
  const Cell cell = common_cell(experiment);
  const TraceReader trace(experiment.traces[cell.trace]);
  const std::int64_t recorded = recorded_tokens(trace, cell);
  if (request_.context_tokens != 0 && request_.context_tokens < recorded) {
    throw UserError({"--context", ""}, "found " + std::to_string(request_.context_tokens),
                    "at least the " + std::to_string(recorded) + " tokens of " +
                        trace_name(trace.file()) + " (`kvreplay cut` makes a shorter trace)");
  }
  if (request_.limits.max_next_ttft_s && cell.batch != 1) {
    throw UserError({"--max-next-ttft", ""}, "found a batch of " + std::to_string(cell.batch),
                    "one sequence (--set batch=1)");
  }
}

std::int64_t Recommender::work() const {
  const Experiment experiment = request_.experiment.load();
  const std::size_t devices = request_.experiment.configs.names("devices").size();
  return static_cast<std::int64_t>(search_work(experiment.systems.size(), request_.rounds) +
                                   (request_.limits.any() ? changes_work(devices) : 0));
}

Recommendation Recommender::recommend(StageStore& store, const std::string& temporary_folder,
                                      Progress* progress) const {
  return Search(request_, store, temporary_folder, progress).run();
}

}  // namespace kvreplay
