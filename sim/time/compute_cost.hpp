#pragma once

#include <cstdint>

#include "base/engine/simulation.hpp"
#include "sim/time/model_spec.hpp"
#include "sim/time/platform.hpp"

namespace kvreplay {

/// What one layer has to do at one step apart from its weights: sums over the sequences of the
/// batch.
struct LayerLoad {
  std::int64_t batch = 1;
  double score_flops = 0;
  double score_bytes = 0;      ///< representatives read
  double attended_tokens = 0;  ///< per query head, summed over sequences
  double attended_bytes = 0;   ///< keys and values of those tokens for all KV heads, as stored
};

struct LayerCompute {
  SimTime project_ns = 0;  ///< Q, K, V projections, and the layer's fixed overhead
  SimTime score_ns = 0;
  SimTime attend_ns = 0;  ///< attention, output projection and feed-forward, each by its roofline
  double dram_bytes = 0;  ///< read by all of these
};

/// Roofline times of one layer. A batch reads the weights once. Query heads that share a KV head
/// are assumed to share its reads.
[[nodiscard]] LayerCompute layer_compute(const ModelSpec& model, const PlatformSpec& platform,
                                         const LayerLoad& load);

/// The LM head of one step.
[[nodiscard]] SimTime head_compute(const ModelSpec& model, const PlatformSpec& platform,
                                   std::int64_t batch);

}  // namespace kvreplay
