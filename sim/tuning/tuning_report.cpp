#include "sim/tuning/tuning_report.hpp"

#include <algorithm>
#include <array>
#include <iomanip>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "sim/replay/results.hpp"

namespace kvreplay {
namespace {

/// The measure of fidelity that is not the goal.
std::string other_quality_text(const Goal& goal, const QualityMeans& quality) {
  return goal.quality == "attention_mass"
             ? "output error " + fixed_text(quality.output_error, 4)
             : "attention mass " + fixed_text(quality.attention_mass, 4);
}

/// "grouping page (group_tokens 4)", one part per line.
std::string parts_text(const Composition& composition) {
  const nlohmann::json object = nlohmann::json::parse(composition);
  std::string text;
  std::vector<std::string> roles(SystemSpec::roles().begin(), SystemSpec::roles().end());
  roles.insert(roles.begin(), "stream");
  std::size_t width = 10;
  for (const std::string& role : roles) width = std::max(width, role.size());
  for (const std::string& role : roles) {
    const nlohmann::json& member = object.at(role);
    std::string arguments;
    for (const auto& [name, value] : member.items()) {
      if (name == "part") continue;
      arguments += (arguments.empty() ? "" : ", ") + name + " " +
                   (value.is_string() ? value.get<std::string>() : value.dump());
    }
    text += "  " + role + std::string(width - role.size(), ' ') + " " +
            (member.contains("part") ? member["part"].get<std::string>() : "");
    if (!arguments.empty()) text += (member.contains("part") ? " (" + arguments + ")" : arguments);
    text += '\n';
  }
  return text;
}

void add_extremes(std::ostream& text, const Tuning& tuning) {
  std::vector<const TunedRow*> front;
  for (const TunedRow& row : tuning.rows) {
    if (row.on_front) front.push_back(&row);
  }
  text << "The front has " << front.size() << " compositions. Its ends:\n";
  const std::pair<const char*, std::size_t> ends[] = {
      {"fastest", kLatency}, {"most faithful", kQuality}, {"smallest", kDram}};
  const std::array<bool, kObjectives> minimised = tuning.goal.minimised();
  for (const auto& [name, objective] : ends) {
    if (!minimised[objective]) continue;
    const TunedRow& row = *min_row(front, objective);
    text << "  " << std::left << std::setw(14) << name << row.name << ": "
         << tuning.goal.text(row.reached) << '\n';
  }
}

/// What each reference reaches, as it ships and tuned, and by what it is beaten. `best`: the row
/// that was found best, or null where it could not be replayed.
void add_comparison(std::ostream& text, const Goal& goal, const std::vector<TunedRow>& rows,
                    const TunedRow* best) {
  const std::vector<Comparison> all = comparisons(rows, goal);
  std::size_t width = 6;
  for (const Comparison& one : all) width = std::max(width, one.reference->name.size());
  int fit = 0;
  int beaten = 0;
  std::vector<std::string> better_within;  // than the best
  std::vector<std::string> nearer;         // to the limits, which both miss
  for (const Comparison& one : all) {
    text << "  " << std::left << std::setw(static_cast<int>(width)) << one.reference->name << "  "
         << goal.text(one.reference->reached);
    if (!one.reference->score.feasible()) {
      text << (one.reference->cell.quality.output_error > 1 && !goal.max_output_error
                   ? ": an output error above 1 is no answer"
                   : ": misses the limits");
    }
    if (one.tuned != nullptr) {
      text << "; tuned: " << goal.text(one.tuned->reached) << " (" << one.tuned->name << ")";
    }
    const TunedRow& shown = one.shown();
    if (best != nullptr && better(shown.score, best->score)) {
      (shown.score.feasible() ? better_within : nearer).push_back(shown.name);
    }
    if (!shown.score.feasible()) {
      text << '\n';
      continue;
    }
    ++fit;
    const Objectives& own = shown.reached;
    bool is_beaten = false;
    if (one.faster != nullptr && one.faster->reached[kLatency] < own[kLatency]) {
      is_beaten = true;
      text << "; at no worse quality "
           << fixed_text(own[kLatency] / one.faster->reached[kLatency], 2) << "x as fast ("
           << one.faster->name << ")";
    }
    if (one.more_faithful != nullptr && one.more_faithful->reached[kQuality] < own[kQuality]) {
      is_beaten = true;
      text << "; at no worse latency " << goal.quality_text(one.more_faithful->reached[kQuality])
           << " (" << one.more_faithful->name << ")";
    }
    text << (is_beaten ? "\n" : "; not beaten\n");
    beaten += is_beaten ? 1 : 0;
  }
  const Volumes volume = volumes(rows, goal);
  text << "Within the limits are " << fit << " of " << all.size() << " systems, of which " << beaten
       << " are beaten in latency or quality at no worse of the other (memory is not compared, "
          "beyond the limit). Hypervolume, of the box up to the limits (or the worst of all): "
          "systems "
       << fixed_text(volume.references, 4) << ", found " << fixed_text(volume.found, 4)
       << ", together " << fixed_text(volume.together, 4) << ".\n";
  if (best == nullptr) return;
  if (!best->score.feasible()) {
    text << best->name << " misses the limits here. Within them: "
         << (better_within.empty() ? "no system" : join(better_within)) << '.';
    if (!nearer.empty()) text << " Outside, but nearer to them: " << join(nearer) << '.';
    text << '\n';
  } else if (better_within.empty()) {
    text << "No system, as it ships or tuned, is better than " << best->name << " in "
         << goal.minimised_text() << " within the limits.\n";
  } else {
    text << "Better than " << best->name << " in " << goal.minimised_text()
         << " within the limits: " << join(better_within) << ".\n";
  }
}

/// Compositions that were not replayed, by what a stage said of them.
void add_refused(std::ostream& text, const std::map<std::string, std::string>& refused) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto& [name, reason] : refused) {
    std::string kind = reason;
    for (std::size_t at = kind.find(name); at != std::string::npos; at = kind.find(name, at)) {
      kind.replace(at, name.size(), "it");
      at += 2;
    }
    by_reason[kind].push_back(name);
  }
  for (const auto& [reason, names] : by_reason) {
    text << "  " << names.front();
    if (names.size() > 1) text << " and " << names.size() - 1 << " more";
    text << " cannot be replayed: " << reason << '\n';
  }
}

void add_validation(std::ostream& text, const Tuning& tuning, const Validation& validation) {
  text << "\nOn " << validation.trace << ", which nothing was tuned on:\n";
  add_refused(text, validation.refused);
  if (validation.rows.empty()) return;
  const std::string& best_name = tuning.rows[tuning.best].name;
  const TunedRow* best = nullptr;
  for (const TunedRow& row : validation.rows) {
    if (row.name == best_name) best = &row;
  }
  if (best == nullptr) {
    const auto why = validation.refused.find(best_name);
    text << "  the best, " << best_name << ", cannot be replayed there"
         << (why == validation.refused.end() ? "" : ": " + why->second) << '\n';
  } else {
    text << "  the best, " << best_name << ": " << tuning.goal.text(best->reached)
         << (best->score.feasible() ? "" : "; it misses the limits there") << '\n';
    int before = 0;
    int still = 0;
    int by_limits = 0;
    for (const TunedRow& row : validation.rows) {
      if (!row.reference || row.name == best_name) continue;
      const auto tuned_on =
          std::find_if(tuning.rows.begin(), tuning.rows.end(),
                       [&](const TunedRow& other) { return other.name == row.name; });
      if (tuned_on == tuning.rows.end()) continue;
      if (!better(tuning.rows[tuning.best].score, tuned_on->score)) continue;
      ++before;
      if (!better(best->score, row.score)) continue;
      ++(row.score.feasible() ? still : by_limits);
    }
    text << "  of the " << before << " systems that it beats outright on the trace it was tuned on "
         << "(worse in nothing that is minimised, or nearer to the limits), it beats here " << still
         << " on " << tuning.goal.minimised_text() << ", and " << by_limits
         << " by the limits alone, which those miss\n";
  }
  add_comparison(text, tuning.goal, validation.rows, best);
}

}  // namespace

std::string rows_csv(const std::vector<TunedRow>& rows) {
  std::vector<CellResult> cells;
  for (const TunedRow& row : rows) {
    cells.push_back(row.cell);
    cells.back().system = row.name;
  }
  ResultTable table = result_rows(cells);
  std::vector<ResultTable::Head> heads{{"generation"}, {"reference"}, {"variant_of"},
                                       {"feasible"},   {"front"},     {"violation"}};
  table.columns.insert(table.columns.begin(), heads.begin(), heads.end());
  for (const std::string& role : SystemSpec::roles()) table.columns.push_back({role});
  table.columns.push_back({"composition"});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TunedRow& row = rows[i];
    const std::vector<CellValue> first{row.generation,
                                       std::int64_t{row.reference},
                                       row.variant_of,
                                       std::int64_t{row.score.feasible()},
                                       std::int64_t{row.on_front},
                                       row.score.violation};
    std::vector<CellValue>& values = table.rows[i];
    values.insert(values.begin(), first.begin(), first.end());
    const nlohmann::json object = nlohmann::json::parse(row.composition);
    for (const std::string& role : SystemSpec::roles()) {
      values.emplace_back(object.at(role).at("part").get<std::string>());
    }
    values.emplace_back(row.composition);
    take_recorded_quality(table, i, row.cell);
  }
  return csv_text(table);
}

std::string comparison_csv(const Tuning& tuning) {
  ResultTable table;
  for (const char* name :
       {"system", "feasible", "quality_lost", "latency_ms", "dram_kv_bytes", "tuned",
        "tuned_quality_lost", "tuned_latency_ms", "tuned_dram_kv_bytes", "faster",
        "faster_latency_ms", "speedup", "more_faithful", "more_faithful_quality_lost"}) {
    table.columns.push_back({name});
  }
  const double none = std::numeric_limits<double>::quiet_NaN();
  for (const Comparison& one : comparisons(tuning.rows, tuning.goal)) {
    const Objectives& own = one.reference->reached;
    const Objectives& shown = one.shown().reached;
    const bool is_tuned = one.tuned != nullptr;
    const bool faster = one.faster != nullptr;
    const bool better_quality = one.more_faithful != nullptr;
    const double latency = faster ? one.faster->reached[kLatency] : none;
    const bool comparable = faster && one.shown().score.feasible();
    table.rows.push_back({one.reference->name, std::int64_t{one.reference->score.feasible()},
                          own[kQuality], own[kLatency], own[kDram], is_tuned ? one.tuned->name : "",
                          is_tuned ? shown[kQuality] : none, is_tuned ? shown[kLatency] : none,
                          is_tuned ? shown[kDram] : none, faster ? one.faster->name : "", latency,
                          comparable ? shown[kLatency] / latency : none,
                          better_quality ? one.more_faithful->name : "",
                          better_quality ? one.more_faithful->reached[kQuality] : none});
  }
  return csv_text(table);
}

std::string answer_text(const Tuning& tuning, const std::vector<Validation>& validations) {
  std::ostringstream text;
  const TunedRow& best = tuning.rows[tuning.best];
  std::string what;
  if (best.reference) what = ", a system as it ships, which nothing that was found is better than";
  if (!best.variant_of.empty()) what = ", " + best.variant_of + " with other parameters";
  text << "Tuned for " << tuning.about << ".\n"
       << "Searched " << tuning.space << ".\n"
       << "Limits: " << tuning.goal.limits_text() << ". Minimised: " << tuning.goal.minimised_text()
       << ".\n\n"
       << "Best by " << tuning.best_reason << ": " << best.name << what << ": "
       << tuning.goal.text(best.reached) << ", "
       << other_quality_text(tuning.goal, best.cell.quality) << ".\n"
       << parts_text(best.composition)
       << "To replay it, in this folder: kvreplay run replay.json\n";
  std::vector<std::string> better_systems;
  for (const Comparison& one : comparisons(tuning.rows, tuning.goal)) {
    if (one.reference->candidate || !better(one.shown().score, best.score)) continue;
    better_systems.push_back(one.shown().name + " (" + tuning.goal.text(one.shown().reached) + ")");
  }
  if (!better_systems.empty()) {
    text << "Another system is better in " << tuning.goal.minimised_text() << ": "
         << join(better_systems) << ".\n";
  }
  text << '\n';
  add_extremes(text, tuning);
  text
      << "\nAgainst systems as they ship, with the experiment's settings, and with the best of the "
         "parameters tried for each:\n";
  add_comparison(text, tuning.goal, tuning.rows, &best);
  add_refused(text, tuning.refused);
  for (const Validation& validation : validations) add_validation(text, tuning, validation);
  if (validations.empty()) {
    text << "\nNot validated: no other trace was given (--validate). The best may suit this text "
            "alone.\n";
  }
  return text.str();
}

}  // namespace kvreplay
