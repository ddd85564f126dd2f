#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "traces/operations/head_statistics.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

class Progress;

/// Euclidean norms of a layer's vectors, over all tokens and KV heads.
struct NormSummary {
  double mean = 0;
  double max = 0;
};

struct LayerSummary {
  std::int64_t layer = 0;
  std::int64_t query_start = 0;
  std::int64_t sliding_window = 0;
  NormSummary key_norm;
  NormSummary value_norm;
  /// None where keys are stored before RoPE: the scores cannot be computed directly from such keys.
  std::optional<AttentionSummary> attention;  ///< over the measured steps and all query heads
  std::vector<std::string> adapters;
};

struct TraceSummary {
  std::string file;
  TraceInfo info;
  std::int64_t file_bytes = 0;
  std::int64_t measured_steps = 0;  ///< decode steps over which the attention figures are averaged
  /// exp of the mean negative log_probability. The last position is left out, because its next
  /// token is not in the trace.
  double perplexity = 0;
  /// The same from position prompt_tokens on; none with only one decode step.
  std::optional<double> decode_perplexity;
  std::vector<LayerSummary> layers;
};

/// Measures a trace. Attention is exact at every measured step, in double precision; in longer
/// decodes, 48 steps evenly spaced from the first to the last are measured. Layers are loaded one
/// at a time. `progress` advances once per query head of each recorded layer.
[[nodiscard]] TraceSummary summarise(const TraceReader& trace, Progress* progress = nullptr);

/// For people: facts, then a table with one row per layer.
[[nodiscard]] std::string to_text(const TraceSummary& summary);

}  // namespace kvreplay
