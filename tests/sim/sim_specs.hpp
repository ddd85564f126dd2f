#pragma once

#include <string>
#include <vector>

#include "devices/device_config.hpp"
#include "policies/place/place.hpp"
#include "sim/time/model_spec.hpp"
#include "sim/time/platform.hpp"

namespace kvreplay {

/// 4 layers with grouped queries.
inline ModelSpec tiny_model() {
  return ModelSpec::parse(ConfigNode::parse(R"({
      "title": "tiny", "source": "test", "layers": 4, "hidden_size": 64, "query_heads": 6,
      "kv_heads": 2, "head_dim": 16, "ffn_size": 128, "vocabulary": 1000, "weight_bits": 16,
      "tied_embeddings": true})",
                                            "tiny.json"),
                          "tiny");
}

/// 1 GFLOP/s, 1 GB/s, 10 us a layer, 5 us more for a selection.
inline PlatformSpec tiny_platform() {
  return PlatformSpec::parse(ConfigNode::parse(R"({
      "title": "tiny", "source": "test", "compute_gflop_s": 2, "compute_share": 0.5,
      "dram_bandwidth_gb_s": 4, "dram_bandwidth_share": 0.25, "dram_bytes": 1000000000,
      "layer_overhead_us": 10, "selection_overhead_us": 5})",
                                               "tiny.json"),
                             "tiny");
}

/// Adds one step to a layer's plan.
inline void add_step(LayerPlan& layer, const std::vector<Extent>& reads,
                     const std::vector<Extent>& writes, double attended) {
  std::int64_t bytes = 0;
  for (const Extent& extent : reads) bytes += static_cast<std::int64_t>(extent.bytes);
  layer.reads.insert(layer.reads.end(), reads.begin(), reads.end());
  layer.writes.insert(layer.writes.end(), writes.begin(), writes.end());
  layer.read_begin.push_back(std::ssize(layer.reads));
  layer.write_begin.push_back(std::ssize(layer.writes));
  layer.asked_bytes.push_back(2 * bytes);
  layer.hit_bytes.push_back(bytes);
  layer.best_hit_bytes.push_back(bytes);
  layer.missed_bytes.push_back(bytes);
  layer.asked_groups.push_back(2);
  layer.hit_groups.push_back(1);
  layer.moved_bytes.push_back(0);
  layer.attended_tokens.push_back(attended);
  layer.score_bytes.push_back(0);
  layer.score_flops.push_back(0);
}

}  // namespace kvreplay
