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

/// 1 GFLOP/s, 1 GB/s, 10 us per layer, 5 us more for a selection.
inline PlatformSpec tiny_platform() {
  return PlatformSpec::parse(ConfigNode::parse(R"({
      "title": "tiny", "source": "test", "compute_gflop_s": 2, "compute_share": 0.5,
      "dram_bandwidth_gb_s": 4, "dram_bandwidth_share": 0.25, "dram_bytes": 1000000000,
      "layer_overhead_us": 10, "selection_overhead_us": 5})",
                                               "tiny.json"),
                             "tiny");
}

/// Of the given rate of arithmetic alone: neither memory nor launches take time.
inline PlatformSpec without_overheads(double flops_s) {
  PlatformSpec platform = tiny_platform();
  platform.layer_overhead_ns = 0;
  platform.selection_overhead_ns = 0;
  platform.flops_s = flops_s;
  platform.dram_bytes_s = 1e18;
  return platform;
}

inline double seconds(SimTime ns) {
  return static_cast<double>(ns) / 1e9;
}

/// Adds one step to a layer's plan.
inline void add_step(LayerPlan& layer, const std::vector<Extent>& reads,
                     const std::vector<Extent>& writes, double attended) {
  std::int64_t bytes = 0;
  for (const Extent& extent : reads) bytes += static_cast<std::int64_t>(extent.bytes);
  layer.io.reads.insert(layer.io.reads.end(), reads.begin(), reads.end());
  layer.io.writes.insert(layer.io.writes.end(), writes.begin(), writes.end());
  layer.io.read_begin.push_back(std::ssize(layer.io.reads));
  layer.io.write_begin.push_back(std::ssize(layer.io.writes));
  layer.accounting.requested_bytes.push_back(2 * bytes);
  layer.accounting.hit_bytes.push_back(bytes);
  layer.accounting.best_hit_bytes.push_back(bytes);
  layer.accounting.missed_bytes.push_back(bytes);
  layer.accounting.moved_bytes.push_back(0);
  layer.compute.attended_tokens.push_back(attended);
  layer.compute.score_bytes.push_back(0);
  layer.compute.score_flops.push_back(0);
  for (auto* entries : {&layer.compute.fetched_entries, &layer.compute.decoded_entries,
                        &layer.compute.buffered_entries, &layer.compute.regrouped_entries}) {
    entries->push_back(0);
  }
}

}  // namespace kvreplay
