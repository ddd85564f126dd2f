#pragma once

#include <cstdint>
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
  bool reference = false;  ///< a system as it ships, with the experiment's settings
  bool on_front = false;
  Score score{};
  CellResult cell{};
};

/// What a search found.
struct Tuning {
  Goal goal;
  std::string about;  ///< model, platform, device, batch
  std::string space;  ///< what was searched
  std::vector<TunedRow> rows;
  std::size_t best = 0;     ///< a row
  std::string best_reason;  ///< the rule that chose it
};

/// A trace that nothing was tuned on: the front, the best and the references of `Tuning::rows`.
struct Validation {
  std::string trace;
  std::vector<TunedRow> rows;
  std::string problem;  ///< why there are no rows
};

/// The row with the minimum of an objective. Ties go to the minimum of the other objectives, then
/// to the first row. Null without rows.
[[nodiscard]] const TunedRow* min_row(const std::vector<const TunedRow*>& rows,
                                      std::size_t objective);

/// The rules that judge() knows.
[[nodiscard]] const std::vector<std::string>& best_rules();

/// Marks the front, which holds only rows within the limits, and picks the best by the rule:
/// "latency", "quality", "balance" or "auto". Throws UserError where no row meets the limits.
void judge(Tuning& tuning, const std::string& best_by);

/// How a reference compares with what the search found, both within the limits.
struct Comparison {
  const TunedRow* reference = nullptr;
  const TunedRow* faster = nullptr;         ///< lowest latency at no worse quality; null = none
  const TunedRow* more_faithful = nullptr;  ///< best quality at no worse latency; null = none
};
/// One comparison per reference. They point into `rows`.
[[nodiscard]] std::vector<Comparison> comparisons(const std::vector<TunedRow>& rows);

/// Hypervolumes of the rows within the limits, as shares of the box from zero to Goal::reference().
struct Volumes {
  double references = 0;
  double found = 0;
  double together = 0;
};
[[nodiscard]] Volumes volumes(const std::vector<TunedRow>& rows, const Goal& goal);

}  // namespace kvreplay
