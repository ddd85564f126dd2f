#include "sim/time/compute_cost.hpp"

namespace kvreplay {
namespace {

/// Of one sequence, what was measured; null where the roofline has to do.
const MeasuredKernel* measured(const PlatformSpec& platform, MeasuredKernel MeasuredKernels::*kind,
                               std::int64_t batch) {
  if (!platform.kernels || batch != 1) return nullptr;
  const MeasuredKernel& kernel = (*platform.kernels).*kind;
  return kernel.measured() ? &kernel : nullptr;
}
const MeasuredKernel* measured_matrix(const ModelSpec& model, const PlatformSpec& platform,
                                      std::int64_t batch) {
  const MeasuredKernel* kernel = measured(platform, &MeasuredKernels::matrix_vector, batch);
  return kernel != nullptr && platform.kernels->weight_bits == model.weight_bits ? kernel : nullptr;
}

/// A product of `batch` vectors with a weight matrix.
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
  const MeasuredKernel* matrix = measured_matrix(model, platform, load.batch);
  const MeasuredKernel* attention = measured(platform, &MeasuredKernels::attention, load.batch);
  const MeasuredKernel* score = measured(platform, &MeasuredKernels::score, load.batch);
  LayerCompute compute;
  // What is measured has its overheads in it.
  compute.project_ns = matrix != nullptr
                           ? matrix->ns(static_cast<double>(model.qkv_weights()))
                           : platform.layer_overhead_ns +
                                 matrix_ns(model, platform, model.qkv_weights(), load.batch);
  if (load.score_flops > 0) {
    compute.score_ns = score != nullptr
                           ? score->ns(load.score_flops)
                           : platform.selection_overhead_ns +
                                 load.batch * platform.sequence_overhead_ns +
                                 platform.kernel_ns(load.score_flops, load.score_bytes);
  }
  compute.attend_ns = attention != nullptr
                          ? attention->ns(attention_flops / 4)
                          : platform.kernel_ns(attention_flops, load.attended_bytes);
  compute.attend_ns +=
      matrix != nullptr
          ? matrix->ns(static_cast<double>(model.output_weights() + model.ffn_weights()))
          : matrix_ns(model, platform, model.output_weights(), load.batch) +
                matrix_ns(model, platform, model.ffn_weights(), load.batch);
  compute.dram_bytes =
      model.bytes_of(model.qkv_weights() + model.output_weights() + model.ffn_weights()) +
      load.score_bytes + load.attended_bytes;
  return compute;
}

SimTime head_compute(const ModelSpec& model, const PlatformSpec& platform, std::int64_t batch) {
  const MeasuredKernel* matrix = measured_matrix(model, platform, batch);
  return matrix != nullptr ? matrix->ns(static_cast<double>(model.head_weights()))
                           : matrix_ns(model, platform, model.head_weights(), batch);
}

}  // namespace kvreplay
