#include "sim/tuning/tuning_report.hpp"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

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
  for (const auto& [name, objective] : ends) {
    const TunedRow& row = *min_row(front, objective);
    text << "  " << std::left << std::setw(14) << name << row.name << ": "
         << tuning.goal.text(row.score.objectives) << '\n';
  }
}

void add_comparison(std::ostream& text, const Goal& goal, const std::vector<TunedRow>& rows) {
  const std::vector<Comparison> all = comparisons(rows);
  std::size_t width = 6;
  for (const Comparison& one : all) width = std::max(width, one.reference->name.size());
  int fit = 0;
  int beaten = 0;
  for (const Comparison& one : all) {
    const Objectives& own = one.reference->score.objectives;
    text << "  " << std::left << std::setw(static_cast<int>(width)) << one.reference->name << "  "
         << goal.text(one.reference->score.objectives);
    if (!one.reference->score.feasible()) {
      text << ": misses the limits\n";
      continue;
    }
    ++fit;
    bool is_beaten = false;
    if (one.faster != nullptr && one.faster->score.objectives[kLatency] < own[kLatency]) {
      is_beaten = true;
      text << "; at no worse quality "
           << fixed_text(own[kLatency] / one.faster->score.objectives[kLatency], 2) << "x as fast ("
           << one.faster->name << ")";
    }
    if (one.more_faithful != nullptr &&
        one.more_faithful->score.objectives[kQuality] < own[kQuality]) {
      is_beaten = true;
      text << "; at no worse latency "
           << goal.quality_text(one.more_faithful->score.objectives[kQuality]) << " ("
           << one.more_faithful->name << ")";
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
}

void add_validation(std::ostream& text, const Tuning& tuning, const Validation& validation) {
  text << "\nOn " << validation.trace << ", which nothing was tuned on:\n";
  if (validation.rows.empty()) {
    text << "  no replay: " << validation.problem << '\n';
    return;
  }
  const std::string& best_name = tuning.rows[tuning.best].name;
  const TunedRow* best = nullptr;
  for (const TunedRow& row : validation.rows) {
    if (row.name == best_name) best = &row;
  }
  if (best == nullptr) {
    text << "  the best, " << best_name << ", cannot be replayed there\n";
  } else {
    text << "  the best, " << best_name << ": " << tuning.goal.text(best->score.objectives)
         << (best->score.feasible() ? "" : "; it misses the limits there") << '\n';
    int before = 0;
    int still = 0;
    int by_limits = 0;
    for (const TunedRow& row : validation.rows) {
      if (!row.reference || row.name == best_name) continue;
      const auto tuned_on =
          std::find_if(tuning.rows.begin(), tuning.rows.end(),
                       [&](const TunedRow& other) { return other.name == row.name; });
      if (!better(tuning.rows[tuning.best].score, tuned_on->score)) continue;
      ++before;
      if (!better(best->score, row.score)) continue;
      ++(row.score.feasible() ? still : by_limits);
    }
    text << "  of the " << before << " systems that it beats outright on the trace it was tuned on "
         << "(worse in nothing, memory too, or nearer to the limits), it beats here " << still
         << " on quality, latency and memory, and " << by_limits
         << " by the limits alone, which those miss\n";
  }
  add_comparison(text, tuning.goal, validation.rows);
}

}  // namespace

std::string rows_csv(const std::vector<TunedRow>& rows) {
  std::vector<CellResult> cells;
  for (const TunedRow& row : rows) {
    cells.push_back(row.cell);
    cells.back().system = row.name;
  }
  ResultTable table = result_rows(cells);
  std::vector<ResultTable::Head> heads{
      {"generation"}, {"reference"}, {"feasible"}, {"front"}, {"violation"}};
  table.columns.insert(table.columns.begin(), heads.begin(), heads.end());
  for (const std::string& role : SystemSpec::roles()) table.columns.push_back({role});
  table.columns.push_back({"composition"});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TunedRow& row = rows[i];
    const std::vector<CellValue> first{row.generation, std::int64_t{row.reference},
                                       std::int64_t{row.score.feasible()},
                                       std::int64_t{row.on_front}, row.score.violation};
    std::vector<CellValue>& values = table.rows[i];
    values.insert(values.begin(), first.begin(), first.end());
    const nlohmann::json object = nlohmann::json::parse(row.composition);
    for (const std::string& role : SystemSpec::roles()) {
      values.emplace_back(object.at(role).at("part").get<std::string>());
    }
    values.emplace_back(row.composition);
  }
  return csv_text(table);
}

std::string comparison_csv(const Tuning& tuning) {
  ResultTable table;
  for (const char* name :
       {"system", "feasible", "quality_lost", "latency_ms", "dram_kv_bytes", "faster",
        "faster_latency_ms", "speedup", "more_faithful", "more_faithful_quality_lost"}) {
    table.columns.push_back({name});
  }
  const double none = std::numeric_limits<double>::quiet_NaN();
  for (const Comparison& one : comparisons(tuning.rows)) {
    const Objectives& own = one.reference->score.objectives;
    const bool faster = one.faster != nullptr;
    const bool better_quality = one.more_faithful != nullptr;
    const double latency = faster ? one.faster->score.objectives[kLatency] : none;
    const bool comparable = faster && one.reference->score.feasible();
    table.rows.push_back({one.reference->name, std::int64_t{one.reference->score.feasible()},
                          own[kQuality], own[kLatency], own[kDram], faster ? one.faster->name : "",
                          latency, comparable ? own[kLatency] / latency : none,
                          better_quality ? one.more_faithful->name : "",
                          better_quality ? one.more_faithful->score.objectives[kQuality] : none});
  }
  return csv_text(table);
}

std::string answer_text(const Tuning& tuning, const std::vector<Validation>& validations) {
  std::ostringstream text;
  const TunedRow& best = tuning.rows[tuning.best];
  text << "Tuned for " << tuning.about << ".\n"
       << "Searched " << tuning.space << ".\n"
       << "Limits: " << tuning.goal.limits_text() << ".\n\n"
       << "Best by " << tuning.best_reason << ": " << best.name << ", "
       << tuning.goal.text(best.score.objectives) << ", "
       << other_quality_text(tuning.goal, best.cell.quality) << ".\n"
       << parts_text(best.composition) << '\n';
  add_extremes(text, tuning);
  text << "\nAgainst systems with the experiment's settings, which are not tuned:\n";
  add_comparison(text, tuning.goal, tuning.rows);
  for (const Validation& validation : validations) add_validation(text, tuning, validation);
  if (validations.empty()) {
    text << "\nNot validated: no other trace was given (--validate). The best may suit this text "
            "alone.\n";
  }
  return text.str();
}

}  // namespace kvreplay
