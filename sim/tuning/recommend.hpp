#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result_folder.hpp"
#include "sim/replay/experiment_request.hpp"
#include "sim/replay/replay.hpp"
#include "sim/tuning/search_space.hpp"

namespace kvreplay {

class Progress;
class StageStore;

/// What a user can live with. What is within a limit is not rewarded further.
struct UserLimits {
  std::optional<double> min_tokens_per_s{};
  std::optional<double> max_ttft_s{};
  /// For key-value management, while decoding and during the prefill.
  std::optional<std::int64_t> max_dram_bytes{};
  std::optional<double> max_output_error{};
  std::optional<double> min_years{};

  [[nodiscard]] bool any() const;
  /// "at least 3 tokens per second, ..."
  [[nodiscard]] std::string text() const;
};

/// A limit that a system does not keep to.
struct MissedLimit {
  std::string text;   ///< "first token after 271 s, 9.0 times the limit of 30 s"
  double excess = 0;  ///< as a share of the limit, above 0
};

[[nodiscard]] std::vector<MissedLimit> missed_limits(const UserLimits& limits,
                                                     const CellResult& cell);

/// Whether `a` is to be recommended before `b`: it misses its limits by less in sum (to two digits)
/// or, where both miss as much, it is better in the first of the properties without a limit in
/// which they differ (output error, tokens per second, first token, memory, energy).
[[nodiscard]] bool recommended_before(const UserLimits& limits, const CellResult& a,
                                      const CellResult& b);

struct RecommendedRow {
  std::string system;
  Composition composition;
  std::string budgets;  ///< "selection.budget_tokens 512 (256), ...": what was changed, from what
  CellResult cell;
  std::vector<MissedLimit> missed;
};

/// A single change and what would then keep to every limit.
struct HelpfulChange {
  std::string text;
  RecommendedRow row;
};

/// The turn after the prompt and its answer.
struct NextQuestion {
  std::int64_t earlier_tokens = 0;
  std::int64_t new_tokens = 0;
  double ttft_s = 0;
  double recompute_s = 0;  ///< that computing the earlier tokens anew would add
  /// Number of the turn in the recording that was replayed; 0 = an estimate, in which the new
  /// tokens are computed while what lies on the device is read, and the longer of the two counts.
  std::int64_t turn = 0;
};

struct Recommendation {
  std::string about;
  UserLimits limits;
  std::vector<RecommendedRow> rows;    ///< best first
  std::vector<HelpfulChange> changes;  ///< cheapest first; empty where a row misses nothing
  std::vector<std::string> left_out;   ///< systems that the trace does not allow
  std::optional<NextQuestion> next;    ///< with the first system; of one sequence
  std::int64_t evaluations = 0;
};

/// Members are named like the options of `kvreplay recommend`.
struct RecommendRequest {
  ExperimentRequest experiment{};
  std::int64_t context_tokens = 0;  ///< 0 = that of the recording
  UserLimits limits{};
  int rounds = 2;  ///< of the search for budgets
};

/// Answers which of the shipped systems suits a user's limits.
class Recommender {
 public:
  /// Reads and checks everything. Throws UserError before any work.
  explicit Recommender(RecommendRequest request);

  /// Upper limit of the units of progress.
  [[nodiscard]] std::int64_t work() const;
  /// Budgets are searched by factors of what ships (SearchSpace::checked() says what is valid):
  /// first for every system in the direction that its limits ask for, then for the best ones around
  /// what was found. `temporary_folder`: for traces that a smaller context needs; exists.
  [[nodiscard]] Recommendation recommend(StageStore& store, const std::string& temporary_folder,
                                         Progress* progress) const;

 private:
  class Search;

  RecommendRequest request_;
};

/// The answer for people.
[[nodiscard]] std::string answer_text(const Recommendation& recommendation);
/// answer.txt, ranked.csv (all metrics, budgets, missed limits) and, of the first, best.json.
[[nodiscard]] std::vector<ResultFile> result_files(const Recommendation& recommendation,
                                                   const std::string& command);

}  // namespace kvreplay
