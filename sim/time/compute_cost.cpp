#include "sim/time/compute_cost.hpp"

#include <algorithm>

namespace kvreplay {
namespace {

/// Of one sequence, what was measured; null where the roofline has to do.
const MeasuredKernel* measured(const PlatformSpec& platform, MeasuredKind MeasuredKernels::*kind,
                               std::string_view part, std::int64_t batch) {
  if (!platform.kernels || batch != 1) return nullptr;
  return ((*platform.kernels).*kind).find(part);
}
const MeasuredKernel* measured_matrix(const ModelSpec& model, const PlatformSpec& platform,
                                      std::int64_t batch) {
  const MeasuredKernel* kernel = measured(platform, &MeasuredKernels::matrix_vector, "", batch);
  return kernel != nullptr && platform.kernels->weight_bits == model.weight_bits ? kernel : nullptr;
}

/// Work that a platform without its kernel does not charge; none takes no time.
SimTime extra_ns(const MeasuredKernel* kernel, std::int64_t work) {
  return kernel == nullptr || work == 0 ? 0 : kernel->ns(static_cast<double>(work));
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
  const LayerSpec& layer = model.layer(load.layer);
  // Two products, Q K^T and P V, with two operations per element.
  const double attention_flops =
      4.0 * load.attended_tokens * static_cast<double>(layer.query_heads * layer.head_dim);
  const auto batch = static_cast<double>(load.batch);
  const double state_bytes =
      layer.attends ? 0 : 2 * batch * static_cast<double>(model.state_bytes);  // read and written
  const auto expert_weights = static_cast<double>(layer.expert_weights);
  const double expert_flops =
      2.0 * batch * static_cast<double>(layer.active_experts) * expert_weights;
  const double expert_bytes =
      ModelSpec::experts_read(layer, load.batch) * expert_weights * model.expert_weight_bits / 8.0;
  const std::int64_t projections = layer.query_weights + layer.key_value_weights;
  const MeasuredKernel* matrix = measured_matrix(model, platform, load.batch);
  const auto kernel = [&](MeasuredKind MeasuredKernels::*kind, std::string_view part) {
    return measured(platform, kind, part, load.batch);
  };
  const MeasuredKernel* attention =
      kernel(&MeasuredKernels::attention, load.heads_attend_alone ? load.grouping : "together");
  const MeasuredKernel* score = kernel(&MeasuredKernels::score, load.scoring);
  // What is measured has its overheads in it.
  LayerCompute compute;
  compute.project_ns = matrix != nullptr ? matrix->ns(static_cast<double>(projections))
                                         : platform.layer_overhead_ns +
                                               matrix_ns(model, platform, projections, load.batch);
  if (load.score_flops > 0) {
    compute.score_ns = score != nullptr
                           ? score->ns(load.score_flops)
                           : platform.selection_overhead_ns +
                                 platform.kernel_ns(load.score_flops, load.score_bytes);
  }
  if (load.looks_ahead && matrix != nullptr) {
    compute.score_ns += matrix->ns(static_cast<double>(layer.query_weights));
  }
  compute.score_ns += extra_ns(kernel(&MeasuredKernels::fetch, ""), load.fetched_entries);
  compute.attend_ns = attention != nullptr
                          ? attention->ns(attention_flops / 4)
                          : platform.kernel_ns(attention_flops, load.attended_bytes);
  compute.attend_ns += platform.buffer_ns(static_cast<double>(load.inserted_reads),
                                          static_cast<double>(load.writing_sequences) / batch);
  compute.attend_ns +=
      platform.kernel_ns(0, state_bytes) + platform.kernel_ns(expert_flops, expert_bytes);
  if (matrix != nullptr) {
    compute.attend_ns += matrix->ns(
        static_cast<double>(layer.output_weights + layer.ffn_weights + layer.other_weights));
  } else {
    for (const std::int64_t weights :
         {layer.output_weights, layer.ffn_weights, layer.other_weights}) {
      compute.attend_ns += matrix_ns(model, platform, weights, load.batch);
    }
  }
  compute.attend_ns +=
      extra_ns(kernel(&MeasuredKernels::decode, load.precision), load.decoded_entries) +
      extra_ns(kernel(&MeasuredKernels::buffered, load.precision), load.buffered_entries) +
      extra_ns(kernel(&MeasuredKernels::append, load.grouping),
               load.appended_entries + load.regrouped_entries);
  compute.dram_bytes =
      model.bytes_of(projections + layer.output_weights + layer.ffn_weights + layer.other_weights) +
      expert_bytes + state_bytes + load.score_bytes + load.attended_bytes;
  return compute;
}

ChunkCompute chunk_compute(const ModelSpec& model, const PlatformSpec& platform,
                           const PromptChunk& chunk) {
  const LayerSpec& layer = model.layer(chunk.layer);
  const std::int64_t tokens = chunk.batch * chunk.tokens;
  ChunkCompute compute;
  compute.ns = platform.layer_overhead_ns;
  for (const std::int64_t weights :
       {layer.query_weights + layer.key_value_weights, layer.output_weights, layer.ffn_weights,
        layer.other_weights}) {
    compute.ns += matrix_ns(model, platform, weights, tokens);
    compute.dram_bytes += model.bytes_of(weights);
  }
  const auto expert_weights = static_cast<double>(layer.expert_weights);
  const double expert_bytes =
      ModelSpec::experts_read(layer, tokens) * expert_weights * model.expert_weight_bits / 8.0;
  compute.ns += platform.kernel_ns(2.0 * static_cast<double>(tokens) *
                                       static_cast<double>(layer.active_experts) * expert_weights,
                                   expert_bytes);
  double attended = 0;
  double attention_bytes = 0;
  if (layer.attends) {
    for (std::int64_t i = 1; i <= chunk.tokens; ++i) {
      attended += static_cast<double>(visible_tokens(chunk.begin + i, chunk.sliding_window));
    }
    const std::int64_t read =
        std::min(chunk.begin + chunk.tokens,
                 chunk.tokens + visible_tokens(chunk.begin, chunk.sliding_window));
    attention_bytes = 2.0 * static_cast<double>(chunk.batch * read * chunk.vectors *
                                                layer.kv_heads * layer.head_dim);
  } else {
    attention_bytes = 2.0 * static_cast<double>(chunk.batch * model.state_bytes);
  }
  compute.ns += platform.kernel_ns(4.0 * static_cast<double>(chunk.batch) * attended *
                                       static_cast<double>(layer.query_heads * layer.head_dim),
                                   attention_bytes);
  compute.dram_bytes += expert_bytes + attention_bytes;
  return compute;
}

SimTime index_compute(const PlatformSpec& platform, const IndexWork& work) {
  if (work.flops == 0 && work.bytes == 0) return 0;
  const MeasuredKernel* factorise = measured(platform, &MeasuredKernels::factorise, "", work.batch);
  if (factorise == nullptr || work.factorise_flops == 0) {
    return platform.selection_overhead_ns + platform.kernel_ns(work.flops, work.bytes);
  }
  return platform.selection_overhead_ns + factorise->ns(work.factorise_flops) +
         platform.kernel_ns(work.flops - work.factorise_flops, work.bytes);
}

SimTime submit_compute(const PlatformSpec& platform, std::int64_t commands) {
  return extra_ns(measured(platform, &MeasuredKernels::submit, "", 1), commands);
}

SimTime head_compute(const ModelSpec& model, const PlatformSpec& platform, std::int64_t batch) {
  const MeasuredKernel* matrix = measured_matrix(model, platform, batch);
  return matrix != nullptr ? matrix->ns(static_cast<double>(model.head_weights()))
                           : matrix_ns(model, platform, model.head_weights(), batch);
}

}  // namespace kvreplay
