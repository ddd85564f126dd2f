#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/decide/decide.hpp"
#include "sim/models/model_file.hpp"

namespace kvreplay {

struct ClosedLoopOptions {
  std::vector<std::int32_t> ids = {};  ///< the text to follow, at least prompt_tokens + steps
  std::int64_t prompt_tokens = 2048;
  std::int64_t steps = 256;
  std::int64_t query_window = 64;  ///< last queries of the prompt that policies may look at
  const AdapterSource* adapters = nullptr;
  std::uint64_t seed = 1;
  int threads = 1;
  std::int64_t chunk_tokens = 256;    ///< rows per matrix product of the prompt
  std::int64_t systems_at_once = 24;  ///< systems per pass over the weights; limits memory
  Progress* progress = nullptr;       ///< advances by closed_loop_work in total
};

/// The model's predictions, [steps] each. The last step has no next token.
struct ClosedLoopRun {
  std::string system;
  std::vector<float> log_probability;  ///< of the text's next token; 0 at the last step
  std::vector<float> kl_divergence;    ///< KL(full || system) of the next-token distribution, nats
  std::vector<std::int32_t> likeliest;
  /// Tokens that a query head attended to, including its own: mean over steps, layers and heads.
  double attended_tokens = 0;
  /// Stored bits per element of key and value at the end: mean over the tokens that were not
  /// evicted.
  double stored_bits = 16;

  /// exp of the mean negative log-probability over all steps but the last.
  [[nodiscard]] double perplexity() const;
  [[nodiscard]] double mean_kl() const;
  /// Share of the steps whose most likely token is that of `full`.
  [[nodiscard]] double agreement(const ClosedLoopRun& full) const;
};

struct ClosedLoopResult {
  ClosedLoopRun full;  ///< full attention in single precision: what record_trace measures
  std::vector<ClosedLoopRun> systems;
};

/// Units of progress of a run, which take about equal times: the prompt's tokens, each layer of
/// each system that takes them, and each step of each system.
[[nodiscard]] std::int64_t closed_loop_work(const Architecture& architecture, std::int64_t systems,
                                            const ClosedLoopOptions& options);

/// Decodes a text with each system's selection, eviction and stored precision inside attention at
/// every layer. The prompt is prefilled under full attention. Then every step attends as the
/// system's LayerPolicy decides, and the next step sees the result. The systems share the passes
/// over the weights, with one row each, and do not affect each other: systems[i] depends only on
/// the model, the text, systems[i] and the seed.
[[nodiscard]] ClosedLoopResult run_closed_loop(const Model& model,
                                               std::span<const NamedDecideSpec> systems,
                                               const ClosedLoopOptions& options);

}  // namespace kvreplay
