#pragma once

#include <cstdint>
#include <string_view>

#include "base/engine/simulation.hpp"
#include "sim/time/model_spec.hpp"
#include "sim/time/platform.hpp"

namespace kvreplay {

/// What one layer has to do at one step apart from its weights: sums over the sequences of the
/// batch.
struct LayerLoad {
  std::int64_t batch = 1;
  double score_flops = 0;
  double score_bytes = 0;           ///< representatives read
  double attended_tokens = 0;       ///< per query head, summed over sequences
  double attended_bytes = 0;        ///< keys and values of those tokens for all KV heads, as stored
  std::int64_t inserted_reads = 0;  ///< requests whose entries a cache keeps
  std::int64_t writing_sequences = 0;  ///< whose new entries are written in this step
  std::int64_t layer = 0;              ///< of the model
  // Of layers with entries outside memory, once per KV head; only a measured platform charges them.
  std::int64_t fetched_entries = 0;
  std::int64_t decoded_entries = 0;
  std::int64_t buffered_entries = 0;
  std::int64_t appended_entries = 0;
  std::int64_t regrouped_entries = 0;
  bool looks_ahead = false;         ///< queries were computed for the scores alone
  bool heads_attend_alone = false;  ///< as IoPlan::heads_select_alone
  std::string_view grouping{};      ///< parts, as IoPlan has them
  std::string_view scoring{};
  std::string_view precision{};
};

struct LayerCompute {
  SimTime project_ns = 0;  ///< Q, K, V projections, and the layer's fixed overhead
  SimTime score_ns = 0;
  SimTime attend_ns = 0;  ///< what was read made ready; attention, output projection, feed-forward
  double dram_bytes = 0;  ///< read by all of these
};

/// Times of one layer: as measured where the platform has it, otherwise by the roofline. A batch
/// reads the weights once, and of a layer's experts those that some token of it passes through.
/// Query heads that share a KV head are taken to share its reads.
[[nodiscard]] LayerCompute layer_compute(const ModelSpec& model, const PlatformSpec& platform,
                                         const LayerLoad& load);

/// Tokens [begin, begin + tokens) of the prompt of each sequence of a batch, in one layer.
struct PromptChunk {
  std::int64_t batch = 1;
  std::int64_t begin = 0;
  std::int64_t tokens = 1;
  std::int64_t layer = 0;
  std::int64_t sliding_window = 0;  ///< 0 = none
  std::int64_t vectors = 2;         ///< of an entry: a key and a value, or one for both
};

struct ChunkCompute {
  SimTime ns = 0;
  double dram_bytes = 0;
};

/// A chunk by the roofline: products of all its tokens with the layer's weights, which are read
/// once, and causal attention over what precedes each token (in half precision, as it was
/// computed), whose keys and values are read once per chunk.
[[nodiscard]] ChunkCompute chunk_compute(const ModelSpec& model, const PlatformSpec& platform,
                                         const PromptChunk& chunk);

/// What the parts of a system compute for the index of a layer's prompt, over a batch.
struct IndexWork {
  std::int64_t batch = 1;
  double flops = 0;
  double bytes = 0;            ///< moved to or from DRAM
  double factorise_flops = 0;  ///< of `flops`, at a rate of their own where it was measured
};

/// No work takes no time.
[[nodiscard]] SimTime index_compute(const PlatformSpec& platform, const IndexWork& work);

/// The host's work to hand so many commands to the device; only a measured platform charges it.
[[nodiscard]] SimTime submit_compute(const PlatformSpec& platform, std::int64_t commands);

/// The LM head of one step.
[[nodiscard]] SimTime head_compute(const ModelSpec& model, const PlatformSpec& platform,
                                   std::int64_t batch);

}  // namespace kvreplay
