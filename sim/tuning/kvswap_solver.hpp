#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace kvreplay {

/// KVSwap's parameters for a batch and a context.
struct KvSwapSetting {
  std::int64_t sigma = 0;            ///< compression of the keys: rank = width / sigma
  std::int64_t group_tokens = 0;     ///< G
  std::int64_t capacity_groups = 0;  ///< C, slots of the reuse buffer per layer

  friend bool operator==(const KvSwapSetting&, const KvSwapSetting&) = default;
  friend bool operator<(const KvSwapSetting& a, const KvSwapSetting& b) {
    return std::tie(a.sigma, a.group_tokens, a.capacity_groups) <
           std::tie(b.sigma, b.group_tokens, b.capacity_groups);
  }
};

/// The inputs of the tuner's decision (KVSwap, arXiv 2511.11907). What the paper leaves open is
/// marked "ours".
struct KvSwapProblem {
  std::int64_t layers = 0;
  std::int64_t width = 0;        ///< elements of a token's keys, all KV heads: kv_heads * head_dim
  std::int64_t entry_bytes = 0;  ///< of a token's key and value, all KV heads, as stored
  std::int64_t selected_tokens = 0;  ///< M G
  std::int64_t read_buffers = 2;     ///< of M G entries each: prefetch depth + 1
  std::int64_t budget_bytes = 0;     ///< memory of KV management, one sequence, all layers
  std::vector<std::int64_t> sigmas;  ///< those with an adapter, ascending, up to sigma_max
  std::vector<std::int64_t>
      group_sizes;     ///< values of G, ascending, up to G_max; ours: powers of two
  double alpha = 0.1;  ///< share of the I/O time that may be exposed
  /// Ours: minimum size of the reuse buffer, which is its size at the smallest sigma that fits; 0 =
  /// M G, what one step selects.
  std::int64_t initial_reuse_tokens = 0;
  /// Ours: delta, by which the buffer grows each time sigma is raised; 0 = all that the budget
  /// leaves, from the start.
  std::int64_t delta_tokens = 0;

  [[nodiscard]] std::int64_t min_reuse_tokens() const {
    return initial_reuse_tokens > 0 ? initial_reuse_tokens : selected_tokens;
  }
};

/// Bytes of one sequence, counted like dram_kv_bytes: (compressed keys in fp16 + reuse buffer +
/// rolling buffer) x layers + read buffers, with all of them full. The adapter is left out, because
/// all sequences share it.
[[nodiscard]] std::int64_t kvswap_memory_bytes(const KvSwapProblem& problem,
                                               const KvSwapSetting& setting,
                                               std::int64_t context_tokens);

/// What stage 3 gives for a setting.
struct KvSwapMeasured {
  double latency_ms = 0;
  double compute_ms = 0;
  double io_ms = 0;          ///< time with at least one read or write in progress
  double exposed_io_ms = 0;  ///< the part of it that the processor waits for
  double reuse_rate = 0;     ///< bytes found in the reuse buffer / bytes requested
  double attention_mass = 0;
  double output_error = 0;

  /// Share of the I/O time that compute hides; 1 where there is no I/O.
  [[nodiscard]] double hidden_share() const { return io_ms > 0 ? 1 - exposed_io_ms / io_ms : 1; }
};

struct KvSwapSolution {
  std::int64_t batch = 0;
  std::int64_t context_tokens = 0;
  KvSwapSetting setting;
  std::int64_t memory_bytes = 0;
  KvSwapMeasured measured;
  bool hidden = false;  ///< whether the share 1 - alpha of the I/O time is hidden
};

using KvSwapMeasure = std::function<KvSwapMeasured(const KvSwapSetting&, std::int64_t batch,
                                                   std::int64_t context_tokens)>;

/// KVSwap's search for one batch and context. From the smallest sigma whose memory fits, G grows
/// until the share 1 - alpha of the I/O time is hidden. Where no G suffices, sigma rises and the
/// memory saved on keys goes to the reuse buffer. Ours: where no sigma suffices, the result is the
/// tried setting with the lowest latency. None where not even the largest sigma fits.
[[nodiscard]] std::optional<KvSwapSolution> solve_kvswap(const KvSwapProblem& problem,
                                                         std::int64_t batch,
                                                         std::int64_t context_tokens,
                                                         const KvSwapMeasure& measure);

/// The longest context at which the setting's memory fits the budget; 0 where none does.
[[nodiscard]] std::int64_t longest_context(const KvSwapProblem& problem,
                                           const KvSwapSetting& setting);

/// Of the solutions whose memory at `context_tokens` fits the budget, the one for the batch and
/// context, or else the nearest one: by the sum of the logarithmic distances of the two ratios from
/// 1 (ours). Ties go to the longer context, then to the larger batch. Null where none fits.
[[nodiscard]] const KvSwapSolution* nearest_solution(const KvSwapProblem& problem,
                                                     std::span<const KvSwapSolution> solutions,
                                                     std::int64_t batch,
                                                     std::int64_t context_tokens);

}  // namespace kvreplay
