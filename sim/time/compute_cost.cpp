#include "sim/time/compute_cost.hpp"

namespace kvreplay {
namespace {

/// A product of `batch` vectors and a weight matrix.
SimTime matrix_ns(const ModelSpec& model, const PlatformSpec& platform, std::int64_t weights,
                  std::int64_t batch) {
  const double flops = 2.0 * static_cast<double>(weights) * static_cast<double>(batch);
  return platform.kernel_ns(flops, model.bytes_of(weights));
}

}  // namespace

LayerCompute layer_compute(const ModelSpec& model, const PlatformSpec& platform,
                           const LayerLoad& load) {
  // Two products, Q K^T and P V, with two operations per element.
  const double attention_flops =
      4.0 * load.attended_tokens * static_cast<double>(model.query_heads * model.head_dim);
  LayerCompute compute;
  compute.project_ns =
      platform.layer_overhead_ns + matrix_ns(model, platform, model.qkv_weights(), load.batch);
  if (load.score_flops > 0) {
    compute.score_ns = platform.selection_overhead_ns + load.batch * platform.sequence_overhead_ns +
                       platform.kernel_ns(load.score_flops, load.score_bytes);
  }
  compute.attend_ns = platform.kernel_ns(attention_flops, load.attended_bytes) +
                      matrix_ns(model, platform, model.output_weights(), load.batch) +
                      matrix_ns(model, platform, model.ffn_weights(), load.batch);
  compute.dram_bytes =
      model.bytes_of(model.qkv_weights() + model.output_weights() + model.ffn_weights()) +
      load.score_bytes + load.attended_bytes;
  return compute;
}

SimTime head_compute(const ModelSpec& model, const PlatformSpec& platform, std::int64_t batch) {
  return matrix_ns(model, platform, model.head_weights(), batch);
}

}  // namespace kvreplay
