// What a search answers: the front, the best of it, and how it stands against systems as they ship.

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "base/size.hpp"
#include "sim/replay/results.hpp"
#include "tools/kvreplay/tune.hpp"

namespace kvreplay {
namespace {

constexpr std::size_t kQuality = 0;
constexpr std::size_t kLatency = 1;
constexpr std::size_t kDram = 2;

std::string fixed(double value, int decimals) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << value;
  return text.str();
}

std::string mib(double bytes) {
  return fixed(bytes / 1048576, 1) + " MiB";
}

/// The row that is least in an objective; of equals the least in the others, then the first.
const TunedRow* least(const std::vector<const TunedRow*>& rows, std::size_t objective) {
  const TunedRow* best = nullptr;
  const auto order = [&](const TunedRow& row) {
    Objectives objectives = row.score.objectives;
    std::swap(objectives[0], objectives[objective]);
    return objectives;
  };
  for (const TunedRow* row : rows) {
    if (best == nullptr || order(*row) < order(*best)) best = row;
  }
  return best;
}

std::vector<const TunedRow*> feasible_rows(const std::vector<TunedRow>& rows, bool references) {
  std::vector<const TunedRow*> chosen;
  for (const TunedRow& row : rows) {
    if (row.score.feasible() && row.reference == references) chosen.push_back(&row);
  }
  return chosen;
}

std::vector<Objectives> objectives_of(const std::vector<const TunedRow*>& rows) {
  std::vector<Objectives> objectives;
  objectives.reserve(rows.size());
  for (const TunedRow* row : rows) objectives.push_back(row->score.objectives);
  return objectives;
}

/// How a reference stands against what the search found, both within the limits.
struct Comparison {
  const TunedRow* reference = nullptr;
  const TunedRow* faster = nullptr;         ///< least latency at no worse quality
  const TunedRow* more_faithful = nullptr;  ///< best quality at no worse latency
};

std::vector<Comparison> comparisons(const std::vector<TunedRow>& rows) {
  const std::vector<const TunedRow*> found = feasible_rows(rows, false);
  std::vector<Comparison> all;
  for (const TunedRow& row : rows) {
    if (!row.reference) continue;
    std::vector<const TunedRow*> as_faithful;
    std::vector<const TunedRow*> as_fast;
    for (const TunedRow* one : found) {
      const Objectives& objectives = one->score.objectives;
      if (objectives[kQuality] <= row.score.objectives[kQuality]) as_faithful.push_back(one);
      if (objectives[kLatency] <= row.score.objectives[kLatency]) as_fast.push_back(one);
    }
    all.push_back({&row, least(as_faithful, kLatency), least(as_fast, kQuality)});
  }
  return all;
}

/// Volumes as shares of the box from zero to the reference point.
struct Volumes {
  double references = 0;
  double found = 0;
  double together = 0;
};

Volumes volumes(const std::vector<TunedRow>& rows, const Goal& goal) {
  std::vector<Objectives> references = objectives_of(feasible_rows(rows, true));
  std::vector<Objectives> found = objectives_of(feasible_rows(rows, false));
  std::vector<Objectives> together = references;
  together.insert(together.end(), found.begin(), found.end());
  const Objectives reference = goal.reference(together);
  const auto share = [&](const std::vector<Objectives>& points) {
    const double box = reference[0] * reference[1] * reference[2];
    return box > 0 ? hypervolume(points, reference) / box : 0;
  };
  return {share(references), share(found), share(together)};
}

std::string quality_text(const Goal& goal, double lost) {
  return goal.quality == "attention_mass" ? "attention mass " + fixed(1 - lost, 4)
                                          : "output error " + fixed(lost, 4);
}

/// The one that is not the goal's.
std::string other_quality_text(const Goal& goal, const QualityMeans& quality) {
  return goal.quality == "attention_mass" ? "output error " + fixed(quality.output_error, 4)
                                          : "attention mass " + fixed(quality.attention_mass, 4);
}

std::string numbers_text(const Goal& goal, const TunedRow& row) {
  const Objectives& objectives = row.score.objectives;
  return fixed(objectives[kLatency], 2) + " ms a token, " +
         quality_text(goal, objectives[kQuality]) + ", " + mib(objectives[kDram]);
}

/// "grouping page (group_tokens 4)", a line each.
std::string parts_text(const Composition& composition) {
  const nlohmann::json object = nlohmann::json::parse(composition);
  std::string text;
  std::vector<std::string> roles(SystemSpec::roles().begin(), SystemSpec::roles().end());
  roles.insert(roles.begin(), "stream");
  for (const std::string& role : roles) {
    const nlohmann::json& member = object.at(role);
    std::string arguments;
    for (const auto& [name, value] : member.items()) {
      if (name == "part") continue;
      arguments += (arguments.empty() ? "" : ", ") + name + " " +
                   (value.is_string() ? value.get<std::string>() : value.dump());
    }
    text += "  " + role + std::string(10 - role.size(), ' ') + " " +
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
    const TunedRow& row = *least(front, objective);
    text << "  " << std::left << std::setw(14) << name << row.name << ": "
         << numbers_text(tuning.goal, row) << '\n';
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
         << numbers_text(goal, *one.reference);
    if (!one.reference->score.feasible()) {
      text << ": misses the limits\n";
      continue;
    }
    ++fit;
    bool is_beaten = false;
    if (one.faster != nullptr && one.faster->score.objectives[kLatency] < own[kLatency]) {
      is_beaten = true;
      text << "; at no worse quality "
           << fixed(own[kLatency] / one.faster->score.objectives[kLatency], 2) << "x as fast ("
           << one.faster->name << ")";
    }
    if (one.more_faithful != nullptr &&
        one.more_faithful->score.objectives[kQuality] < own[kQuality]) {
      is_beaten = true;
      text << "; at no worse latency "
           << quality_text(goal, one.more_faithful->score.objectives[kQuality]) << " ("
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
       << fixed(volume.references, 4) << ", found " << fixed(volume.found, 4) << ", together "
       << fixed(volume.together, 4) << ".\n";
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
    text << "  the best, " << best_name << ": " << numbers_text(tuning.goal, *best)
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

void judge(Tuning& tuning, const std::string& best_by) {
  std::vector<Score> scores;
  for (const TunedRow& row : tuning.rows) scores.push_back(row.score);
  const std::vector<std::size_t> ranks = front_ranks(scores);
  std::vector<const TunedRow*> front;
  for (std::size_t i = 0; i < tuning.rows.size(); ++i) {
    tuning.rows[i].on_front = ranks[i] == 0 && scores[i].feasible();
    if (tuning.rows[i].on_front) front.push_back(&tuning.rows[i]);
  }
  if (front.empty()) {
    const auto nearest = std::min_element(
        tuning.rows.begin(), tuning.rows.end(),
        [](const TunedRow& a, const TunedRow& b) { return a.score.violation < b.score.violation; });
    throw UserError({"tune", ""},
                    "none of " + std::to_string(tuning.rows.size()) +
                        " compositions meets the limits (" + tuning.goal.limits_text() +
                        "); the nearest has " + numbers_text(tuning.goal, *nearest),
                    "wider limits, or more --evaluations");
  }
  const Goal& goal = tuning.goal;
  std::string rule = best_by;
  if (rule == "auto") {
    rule = goal.min_attention_mass || goal.max_output_error ? "latency"
           : goal.max_latency_ms                            ? "quality"
                                                            : "balance";
  }
  const TunedRow* best = nullptr;
  if (rule == "balance") {
    // The shortest way to the point that has the best of each objective; each counts by its range
    // on the front.
    Objectives low;
    Objectives high;
    low.fill(std::numeric_limits<double>::infinity());
    high.fill(-std::numeric_limits<double>::infinity());
    for (const TunedRow* row : front) {
      for (std::size_t i = 0; i < kObjectives; ++i) {
        low[i] = std::min(low[i], row->score.objectives[i]);
        high[i] = std::max(high[i], row->score.objectives[i]);
      }
    }
    double shortest = std::numeric_limits<double>::infinity();
    for (const TunedRow* row : front) {
      double squares = 0;
      for (std::size_t i = 0; i < kObjectives; ++i) {
        if (high[i] == low[i]) continue;
        const double share = (row->score.objectives[i] - low[i]) / (high[i] - low[i]);
        squares += share * share;
      }
      if (squares < shortest) {
        shortest = squares;
        best = row;
      }
    }
    tuning.best_reason = "balance of quality, latency and memory";
  } else {
    best = least(front, rule == "latency" ? kLatency : kQuality);
    tuning.best_reason =
        rule == "latency" ? "latency within the limits" : "quality within the limits";
  }
  tuning.best = static_cast<std::size_t>(best - tuning.rows.data());
}

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
       << numbers_text(tuning.goal, best) << ", "
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
