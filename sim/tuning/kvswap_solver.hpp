#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace kvreplay {

/// What KVSwap's tuner decides for a batch and a context.
struct KvSwapSetting {
  std::int64_t sigma = 0;            ///< compression of the keys: rank = width / sigma
  std::int64_t group_tokens = 0;     ///< G
  std::int64_t capacity_groups = 0;  ///< C, slots of the reuse buffer of one layer

  friend bool operator==(const KvSwapSetting&, const KvSwapSetting&) = default;
  friend bool operator<(const KvSwapSetting& a, const KvSwapSetting& b) {
    return std::tie(a.sigma, a.group_tokens, a.capacity_groups) <
           std::tie(b.sigma, b.group_tokens, b.capacity_groups);
  }
};

/// What it decides from (KVSwap, arXiv 2511.11907). What the paper leaves open is marked ours.
struct KvSwapProblem {
  std::int64_t layers = 0;
  std::int64_t width = 0;        ///< elements of a token's keys, all KV heads: kv_heads * head_dim
  std::int64_t entry_bytes = 0;  ///< of a token's key and value, all KV heads, as stored
  std::int64_t selected_tokens = 0;  ///< M G
  std::int64_t read_buffers = 2;     ///< of M G entries, where reads land: prefetch depth + 1
  std::int64_t budget_bytes = 0;     ///< memory of KV management, one sequence, all layers
  std::vector<std::int64_t> sigmas;  ///< that an adapter is there for, ascending, up to sigma_max
  std::vector<std::int64_t> group_sizes;  ///< of G, ascending, up to G_max; ours: powers of two
  double alpha = 0.1;                     ///< share of the I/O time that may show
  /// Ours: what the reuse buffer holds at least, and at the smallest sigma that fits; 0 = M G, what
  /// one step selects.
  std::int64_t initial_reuse_tokens = 0;
  /// Ours: delta, by which the buffer grows each time that sigma is raised; 0 = all that the budget
  /// leaves, from the start.
  std::int64_t delta_tokens = 0;

  [[nodiscard]] std::int64_t min_reuse_tokens() const {
    return initial_reuse_tokens > 0 ? initial_reuse_tokens : selected_tokens;
  }
};

/// Bytes of one sequence, counted as dram_kv_bytes is: (compressed keys, in fp16, + reuse buffer +
/// rolling buffer) x layers + landing buffers, all of them full. The adapter, which all sequences
/// share, is not in it.
[[nodiscard]] std::int64_t kvswap_memory_bytes(const KvSwapProblem& problem,
                                               const KvSwapSetting& setting,
                                               std::int64_t context_tokens);

/// What stage 3 says of a setting.
struct KvSwapMeasured {
  double latency_ms = 0;
  double compute_ms = 0;
  double io_ms = 0;          ///< with at least one read or write under way
  double exposed_io_ms = 0;  ///< of it, what the processor waits for
  double reuse_rate = 0;     ///< bytes found in the reuse buffer / bytes asked for
  double attention_mass = 0;
  double output_error = 0;

  /// Of the I/O time, under compute; 1 where there is none.
  [[nodiscard]] double hidden_share() const { return io_ms > 0 ? 1 - exposed_io_ms / io_ms : 1; }
};

struct KvSwapSolution {
  std::int64_t batch = 0;
  std::int64_t context_tokens = 0;
  KvSwapSetting setting;
  std::int64_t memory_bytes = 0;
  KvSwapMeasured measured;
  bool hidden = false;  ///< the share 1 - alpha of the I/O time is
};

using KvSwapMeasure = std::function<KvSwapMeasured(const KvSwapSetting&, std::int64_t batch,
                                                   std::int64_t context_tokens)>;

/// KVSwap's search for one batch and context: from the smallest sigma whose memory fits, G grows
/// until the share 1 - alpha of the I/O time is hidden; where none suffices, sigma rises and its
/// keys' memory goes to the reuse buffer. Ours: where no sigma suffices, the setting with the least
/// latency of those tried. Nothing where not even the largest sigma fits.
[[nodiscard]] std::optional<KvSwapSolution> solve_kvswap(const KvSwapProblem& problem,
                                                         std::int64_t batch,
                                                         std::int64_t context_tokens,
                                                         const KvSwapMeasure& measure);

/// The longest context at which the setting's memory fits the budget; 0 where none does.
[[nodiscard]] std::int64_t longest_context(const KvSwapProblem& problem,
                                           const KvSwapSetting& setting);

/// Of the solutions whose memory at `context_tokens` fits the budget, the one for the batch and
/// context, or else the nearest: in the sum of the ratios' distances from 1 on a logarithmic scale
/// (ours); of equals, the longer context, then the larger batch. Null where none fits.
[[nodiscard]] const KvSwapSolution* nearest_solution(const KvSwapProblem& problem,
                                                     std::span<const KvSwapSolution> solutions,
                                                     std::int64_t batch,
                                                     std::int64_t context_tokens);

}  // namespace kvreplay
