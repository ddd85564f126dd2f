#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/decide/decide.hpp"
#include "sim/models/model_file.hpp"

namespace kvreplay {

struct ClosedLoopOptions {
  std::vector<std::int32_t> ids = {};  ///< prompt_tokens + steps or more; they are followed
  std::int64_t prompt_tokens = 2048;
  std::int64_t steps = 256;
  std::int64_t query_window = 64;  ///< last queries of the prompt that policies may look at
  const AdapterSource* adapters = nullptr;
  std::uint64_t seed = 1;
  int threads = 1;
  std::int64_t chunk_tokens = 256;    ///< of the prompt's matrix products
  std::int64_t systems_at_once = 24;  ///< that share each pass over the weights; for memory
  Progress* progress = nullptr;       ///< advances by closed_loop_work in all
};

/// One step after another: what the model says next. [steps] each; the last has no next token.
struct ClosedLoopRun {
  std::string system;
  std::vector<float> log_probability;  ///< of the token that the text has next; 0 at the last step
  std::vector<float> kl_divergence;    ///< KL(full || system) of the next-token distribution, nats
  std::vector<std::int32_t> likeliest;
  /// Tokens that a query head attended to, its own included; mean over steps, layers and heads.
  double attended_tokens = 0;
  /// Stored bits an element of key and value, mean over the tokens that were not evicted, at the
  /// end.
  double stored_bits = 16;

  /// exp of the mean negative log-probability of the steps but the last.
  [[nodiscard]] double perplexity() const;
  [[nodiscard]] double mean_kl() const;
  /// Share of the steps whose likeliest token is that of `full`.
  [[nodiscard]] double agreement(const ClosedLoopRun& full) const;
};

struct ClosedLoopResult {
  ClosedLoopRun full;  ///< full attention in single precision: what record_trace measures
  std::vector<ClosedLoopRun> systems;
};

/// Units of progress of a run, about alike in time: the prompt's tokens, each layer of each system
/// that takes them, each step of each system.
[[nodiscard]] std::int64_t closed_loop_work(const Architecture& architecture, std::int64_t systems,
                                            const ClosedLoopOptions& options);

/// Decodes a text with each system's selection, eviction and stored precision inside attention at
/// every layer: the prompt is prefilled under full attention, then every step attends as the
/// system's LayerPolicy says, and the next step sees what came of it. The systems share the passes
/// over the weights, a row each, and know nothing of each other. systems[i] depends on the model,
/// the text, systems[i] and the seed alone.
[[nodiscard]] ClosedLoopResult run_closed_loop(const Model& model,
                                               std::span<const NamedDecideSpec> systems,
                                               const ClosedLoopOptions& options);

}  // namespace kvreplay
