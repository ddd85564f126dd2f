#include "sim/tuning/tuning.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"

namespace kvreplay {
namespace {

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

}  // namespace

const TunedRow* min_row(const std::vector<const TunedRow*>& rows, std::size_t objective) {
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

const std::vector<std::string>& best_rules() {
  static const std::vector<std::string> kRules{"auto", "latency", "quality", "balance"};
  return kRules;
}

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
                        "); the nearest has " + tuning.goal.text(nearest->score.objectives),
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
    // The shortest distance to the point with the best of each objective. Each objective is scaled
    // by its range on the front.
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
    best = min_row(front, rule == "latency" ? kLatency : kQuality);
    tuning.best_reason =
        rule == "latency" ? "latency within the limits" : "quality within the limits";
  }
  tuning.best = static_cast<std::size_t>(best - tuning.rows.data());
}

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
    all.push_back({&row, min_row(as_faithful, kLatency), min_row(as_fast, kQuality)});
  }
  return all;
}

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

}  // namespace kvreplay
