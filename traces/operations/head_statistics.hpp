#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvreplay {

/// Exact full attention: means over queries. A mass is a sum of softmax weights, 0 to 1.
struct AttentionSummary {
  double entropy_nats = 0;
  double top_16_mass = 0;  ///< of the 16 tokens with the largest weights, for each query
  double top_64_mass = 0;
  double top_256_mass = 0;
  double first_16_mass = 0;  ///< of positions 0 to 15: the attention sinks
  double last_64_mass = 0;   ///< of the 64 latest positions, the query's own among them

  /// Adds one query's softmax weights, which are reordered; `begin` is the position of the first.
  void add(std::vector<double>& weights, std::int64_t begin);
  /// Turns sums into means.
  void divide(double queries);
};

/// How one query head attends, over the measured steps.
struct HeadStatistics : AttentionSummary {
  double top_64_overlap = 0;  ///< share of a step's 64 heaviest tokens that the next step also has
};

/// exp(score - the largest) / their sum, in place.
void softmax(std::span<double> scores);

/// Float rows, [rows, dim].
struct RowView {
  std::span<const float> values;
  std::int64_t dim = 0;
  [[nodiscard]] std::span<const float> row(std::int64_t index) const {
    const auto size = static_cast<std::size_t>(dim);
    return values.subspan(static_cast<std::size_t>(index) * size, size);
  }
};

/// Where heads are measured: pairs of consecutive steps.
struct MeasuredSteps {
  std::vector<std::int64_t> positions;
  std::int64_t query_start = 0;     ///< position of the first row of the queries
  std::int64_t sliding_window = 0;  ///< 0 = full attention
  double softmax_scale = 0;
};

/// At most `max` positions from `begin` on, evenly spaced, each with a successor before `end`.
[[nodiscard]] std::vector<std::int64_t> spread_positions(std::int64_t begin, std::int64_t end,
                                                         std::int64_t max);

/// Both are after RoPE; keys are from position 0 on.
[[nodiscard]] HeadStatistics measure_head(RowView keys, RowView queries,
                                          const MeasuredSteps& steps);

}  // namespace kvreplay
