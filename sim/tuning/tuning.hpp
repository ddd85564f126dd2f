#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/replay/replay.hpp"
#include "sim/tuning/goal.hpp"
#include "sim/tuning/search_space.hpp"

namespace kvreplay {

struct TunedRow {
  std::string name;  ///< of the system, or from the number of the evaluation
  Composition composition;
  std::int64_t generation = 0;
  bool reference = false;    ///< a system as it ships, with the experiment's settings
  std::string variant_of{};  ///< the reference whose parts it has, with other parameters; or ""
  /// Whether it may be best and on the front: where one system is tuned, others are only compared.
  bool candidate = true;
  bool on_front = false;
  Objectives reached{};  ///< as they are
  Score score{};         ///< of those that are minimised, and the limits
  CellResult cell{};
};

/// What a search found.
struct Tuning {
  Goal goal;
  std::string about;  ///< model, platform, device, batch
  std::string space;  ///< what was searched
  std::vector<TunedRow> rows;
  std::size_t best = 0;                        ///< a row
  std::string best_reason;                     ///< the rule that chose it
  std::map<std::string, std::string> refused;  ///< by name: compositions that a stage refused, why
};

/// A trace that nothing was tuned on: the front, the best and the references of `Tuning::rows`.
struct Validation {
  std::string trace;
  std::vector<TunedRow> rows;
  std::map<std::string, std::string> refused{};  ///< by name: rows that are not there, and why
};

/// The row with the minimum of an objective as it is reached. Ties go to the minimum of the other
/// objectives, then to the first row. Null without rows.
[[nodiscard]] const TunedRow* min_row(const std::vector<const TunedRow*>& rows,
                                      std::size_t objective);

/// The rules that judge() knows.
[[nodiscard]] const std::vector<std::string>& best_rules();

/// Marks the front, which holds only rows within the limits, and of rows that are equal in what is
/// minimised only one (a system as it ships before others, then the one that reaches more in the
/// rest). Picks the best by the rule: "latency", "quality", "balance" or "auto". Throws UserError
/// where no row meets the limits.
void judge(Tuning& tuning, const std::string& best_by);

/// Of the rows, which are within the limits and beaten by none of each other, the best by a rule.
/// Balance: the shortest distance to the point that has the best of each minimised objective,
/// scaled by its range without outliers (beyond the third quartile by more than 1.5 times the
/// distance between the quartiles), which are never best, and by no less than a quarter
/// of its best value. Null without rows.
[[nodiscard]] const TunedRow* best_row(const std::vector<const TunedRow*>& rows, const Goal& goal,
                                       const std::string& best_by);

/// How a reference, as it ships or with the parameters found for it, compares with what the search
/// found, all within the limits.
struct Comparison {
  const TunedRow* reference = nullptr;
  const TunedRow* tuned = nullptr;          ///< the best of its variants, if it is better; or null
  const TunedRow* faster = nullptr;         ///< lowest latency at no worse quality; null = none
  const TunedRow* more_faithful = nullptr;  ///< best quality at no worse latency; null = none

  /// The better of the two.
  [[nodiscard]] const TunedRow& shown() const { return tuned != nullptr ? *tuned : *reference; }
};
/// One comparison per reference. They point into `rows`.
[[nodiscard]] std::vector<Comparison> comparisons(const std::vector<TunedRow>& rows,
                                                  const Goal& goal,
                                                  const std::string& best_by = "auto");

/// Hypervolumes of the rows within the limits, as shares of the box from zero to Goal::reference().
struct Volumes {
  double references = 0;
  double found = 0;
  double together = 0;
};
[[nodiscard]] Volumes volumes(const std::vector<TunedRow>& rows, const Goal& goal);

}  // namespace kvreplay
