#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
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
  std::optional<double> max_next_ttft_s{};  ///< of the question after the answer
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

/// The turn after the prompt and its answer, of one sequence. What the first turn left is read
/// back, or computed anew, whichever makes the first token come sooner.
struct NextQuestion {
  std::int64_t earlier_tokens = 0;
  std::int64_t new_tokens = 0;
  double read_back_s = 0;     ///< first token, where the earlier entries are read
  double compute_anew_s = 0;  ///< first token, where the earlier tokens are prefilled once more
  /// Number of the turn in the recording that was replayed; 0 = an estimate, in which the new
  /// tokens are computed while what lies on the device is read, and the longer of the two counts.
  std::int64_t turn = 0;

  [[nodiscard]] bool reads_back() const { return read_back_s <= compute_anew_s; }
  [[nodiscard]] double ttft_s() const { return reads_back() ? read_back_s : compute_anew_s; }
};

/// A system as it was replayed; `next` where that is one sequence.
struct Candidate {
  // Implicit: a result is judged like a candidate of which no next question is known.
  Candidate(CellResult result, std::optional<NextQuestion> question = std::nullopt)
      : cell(std::move(result)), next(question) {}

  CellResult cell;
  std::optional<NextQuestion> next;
};

[[nodiscard]] std::vector<MissedLimit> missed_limits(const UserLimits& limits,
                                                     const Candidate& candidate);

/// Whether `a` is to be recommended before `b`: it misses its limits by less in sum (to two digits)
/// or, where both miss as much, it is better in the first of the properties without a limit in
/// which they differ (output error, tokens per second, first token, memory, energy).
[[nodiscard]] bool recommended_before(const UserLimits& limits, const Candidate& a,
                                      const Candidate& b);

struct RecommendedRow {
  std::string system;
  Composition composition;
  std::string budgets;  ///< "selection.budget_tokens 512 (256), ...": what was changed, from what
  CellResult cell;
  std::optional<NextQuestion> next;
  std::vector<MissedLimit> missed;
};

/// A single change and what would then keep to every limit.
struct HelpfulChange {
  std::string text;
  RecommendedRow row;
};

struct Recommendation {
  std::string about;
  UserLimits limits;
  std::vector<RecommendedRow> rows;    ///< best first
  std::vector<HelpfulChange> changes;  ///< cheapest first; empty where a row misses nothing
  std::vector<std::string> left_out;   ///< systems that the trace does not allow
  std::int64_t evaluations = 0;
};

/// Members are named like the options of `kvreplay recommend`.
struct RecommendRequest {
  ExperimentRequest experiment{};
  std::int64_t context_tokens = 0;  ///< 0 = that of the recording
  /// Of the next question, whose wait is then an estimate; 0 = the last turn of a recorded
  /// conversation, else 256.
  std::int64_t new_tokens = 0;
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
