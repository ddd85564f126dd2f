#include "sim/tuning/tuning.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
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

std::vector<Objectives> reached_by(const std::vector<const TunedRow*>& rows) {
  std::vector<Objectives> objectives;
  objectives.reserve(rows.size());
  for (const TunedRow* row : rows) objectives.push_back(row->reached);
  return objectives;
}

/// Of equal rows: a system as it ships, then what reaches more.
bool comes_first(const TunedRow& a, const TunedRow& b) {
  if (a.reference != b.reference) return a.reference;
  return a.reached < b.reached;
}

/// Takes a row off the front where another one on it is equal in what is minimised.
void drop_duplicates(std::vector<TunedRow>& rows) {
  std::map<Objectives, TunedRow*> first;
  for (TunedRow& row : rows) {
    if (!row.on_front) continue;
    TunedRow*& kept = first[row.score.objectives];
    if (kept == nullptr || comes_first(row, *kept)) {
      if (kept != nullptr) kept->on_front = false;
      kept = &row;
    } else {
      row.on_front = false;
    }
  }
}

double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

struct ObjectiveRange {
  double low = 0;
  double high = 0;  ///< outliers lie above
};

ObjectiveRange range_of(const std::vector<const TunedRow*>& rows, std::size_t objective) {
  std::vector<double> values;
  for (const TunedRow* row : rows) values.push_back(row->score.objectives[objective]);
  std::sort(values.begin(), values.end());
  const double first = quantile(values, 0.25);
  const double third = quantile(values, 0.75);
  const double fence = third + 1.5 * (third - first);
  const auto beyond = std::upper_bound(values.begin(), values.end(), fence);
  return {values.front(), *(beyond - 1)};
}

/// Where all of a front is nearly as good in an objective, its small differences count little.
constexpr double kLeastRange = 0.25;

const TunedRow* balanced_row(const std::vector<const TunedRow*>& rows) {
  std::array<ObjectiveRange, kObjectives> ranges;
  for (std::size_t i = 0; i < kObjectives; ++i) ranges[i] = range_of(rows, i);
  const TunedRow* best = nullptr;
  double shortest = std::numeric_limits<double>::infinity();
  for (const TunedRow* row : rows) {
    double squares = 0;
    bool is_outlier = false;
    for (std::size_t i = 0; i < kObjectives; ++i) {
      const double value = row->score.objectives[i];
      is_outlier |= value > ranges[i].high;
      const double scale = std::max(ranges[i].high - ranges[i].low, kLeastRange * ranges[i].low);
      if (scale == 0) continue;
      const double share = (value - ranges[i].low) / scale;
      squares += share * share;
    }
    if (is_outlier || squares >= shortest) continue;
    shortest = squares;
    best = row;
  }
  // Where every row is an outlier in something, the ends of the front are all there is.
  return best != nullptr ? best : min_row(rows, kQuality);
}

std::string rule_of(const Goal& goal, const std::string& best_by) {
  if (best_by != "auto") return best_by;
  if (goal.min_attention_mass || goal.max_output_error) return "latency";
  return goal.max_latency_ms ? "quality" : "balance";
}

}  // namespace

const TunedRow* min_row(const std::vector<const TunedRow*>& rows, std::size_t objective) {
  const TunedRow* best = nullptr;
  const auto order = [&](const TunedRow& row) {
    Objectives objectives = row.reached;
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

const TunedRow* best_row(const std::vector<const TunedRow*>& rows, const Goal& goal,
                         const std::string& best_by) {
  if (rows.empty()) return nullptr;
  const std::string rule = rule_of(goal, best_by);
  if (rule == "balance") return balanced_row(rows);
  return min_row(rows, rule == "latency" ? kLatency : kQuality);
}

void judge(Tuning& tuning, const std::string& best_by) {
  std::vector<TunedRow*> candidates;
  std::vector<Score> scores;
  for (TunedRow& row : tuning.rows) {
    row.on_front = false;
    if (!row.candidate) continue;
    candidates.push_back(&row);
    scores.push_back(row.score);
  }
  const std::vector<std::size_t> ranks = front_ranks(scores);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    candidates[i]->on_front = ranks[i] == 0 && scores[i].feasible();
  }
  drop_duplicates(tuning.rows);
  std::vector<const TunedRow*> front;
  for (const TunedRow& row : tuning.rows) {
    if (row.on_front) front.push_back(&row);
  }
  const Goal& goal = tuning.goal;
  if (front.empty()) {
    const TunedRow* nearest = *std::min_element(candidates.begin(), candidates.end(),
                                                [](const TunedRow* a, const TunedRow* b) {
                                                  return a->score.violation < b->score.violation;
                                                });
    throw UserError({"tune", ""},
                    "none of " + std::to_string(candidates.size()) +
                        " compositions meets the limits (" + goal.limits_text() +
                        "); the nearest has " + goal.text(nearest->reached),
                    "wider limits, or more --evaluations");
  }
  const std::string rule = rule_of(goal, best_by);
  tuning.best_reason = rule == "balance"   ? "balance of " + goal.minimised_text()
                       : rule == "latency" ? "latency within the limits"
                                           : "quality within the limits";
  tuning.best = static_cast<std::size_t>(best_row(front, goal, best_by) - tuning.rows.data());
}

std::vector<Comparison> comparisons(const std::vector<TunedRow>& rows, const Goal& goal,
                                    const std::string& best_by) {
  const std::vector<const TunedRow*> found = feasible_rows(rows, false);
  std::vector<Comparison> all;
  for (const TunedRow& row : rows) {
    if (!row.reference) continue;
    Comparison one{.reference = &row};
    // Its own front: what none of its variants, nor itself, is better than.
    std::vector<const TunedRow*> own;
    for (const TunedRow& other : rows) {
      if (&other == &row || other.variant_of == row.name) own.push_back(&other);
    }
    std::vector<const TunedRow*> front;
    for (const TunedRow* candidate : own) {
      const bool beaten = std::any_of(own.begin(), own.end(), [&](const TunedRow* other) {
        return better(other->score, candidate->score);
      });
      if (candidate->score.feasible() && !beaten) front.push_back(candidate);
    }
    const TunedRow* best = best_row(front, goal, best_by);
    if (best != nullptr && best != &row) one.tuned = best;
    const Objectives& own_best = one.shown().reached;
    std::vector<const TunedRow*> as_faithful;
    std::vector<const TunedRow*> as_fast;
    for (const TunedRow* other : found) {
      if (other->variant_of == row.name) continue;
      if (other->reached[kQuality] <= own_best[kQuality]) as_faithful.push_back(other);
      if (other->reached[kLatency] <= own_best[kLatency]) as_fast.push_back(other);
    }
    one.faster = min_row(as_faithful, kLatency);
    one.more_faithful = min_row(as_fast, kQuality);
    all.push_back(one);
  }
  return all;
}

Volumes volumes(const std::vector<TunedRow>& rows, const Goal& goal) {
  std::vector<Objectives> references = reached_by(feasible_rows(rows, true));
  std::vector<Objectives> found = reached_by(feasible_rows(rows, false));
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
