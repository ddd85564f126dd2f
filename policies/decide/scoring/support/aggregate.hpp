#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policies/decide/scoring/scoring.hpp"

namespace kvreplay {

/// How the scores of a stream's query heads become rows.
enum class HeadRule {
  kPerQueryHead,  ///< one row per query head
  kMean,          ///< one row: mean of the scores
  kMax,           ///< one row: maximum of the scores
  kSumSoftmax,    ///< one row: sum of each head's softmax over the candidates (KVSwap, PQCache)
  kMaxSoftmax,    ///< one row: maximum of each head's softmax over the candidates (ShadowKV)
};

/// The "heads" parameter of scoring parts.
[[nodiscard]] Parameter head_rule_parameter(std::string default_rule);
[[nodiscard]] HeadRule head_rule_of(const Arguments& arguments);

/// Combines each query head's scores of groups, or of tokens, into rows of group scores. The
/// buffers are kept from step to step.
class Aggregate {
 public:
  Aggregate(HeadRule rule, const StreamShape& shape);

  /// Buffer for the scores of one step, [query heads, columns] row-major; its old contents are
  /// stale.
  [[nodiscard]] std::span<float> scores(std::int64_t columns);

  /// The columns are groups.
  [[nodiscard]] Scores of_groups(const Groups& groups);
  /// The columns are tokens; a group scores as its best member does. Tokens outside groups are not
  /// candidates.
  [[nodiscard]] Scores of_tokens(const Groups& groups);

 private:
  /// Applies the head rule to columns that are candidates. Returns the number of rows, which are
  /// then the first rows of scores_.
  std::int64_t combine_heads();
  [[nodiscard]] bool takes_softmax() const;
  /// Lists the columns that are no candidates, as runs.
  template <typename IsCandidate>
  void find_outsiders(IsCandidate&& is_candidate);
  void fill_outsiders(std::span<float> values, float value) const;
  [[nodiscard]] std::span<float> row(std::int64_t head);

  HeadRule rule_;
  std::int64_t query_heads_;
  float softmax_scale_;
  std::int64_t columns_ = 0;
  std::vector<float> scores_;
  std::vector<std::pair<std::int64_t, std::int64_t>> outsiders_;  // [begin, end) of columns
  std::vector<Token> members_;                                    // of all groups
  std::vector<std::int64_t> ends_;                                // of each group's, in members_
  std::vector<float> group_scores_;
};

}  // namespace kvreplay
