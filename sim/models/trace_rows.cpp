#include "sim/models/trace_rows.hpp"

#include <cmath>

#include "base/random.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kPendingRows = 64;  // rows that wait for one write to the trace
constexpr std::int64_t kSketchRows = 64;   // a norm is then off by 9 %

/// OutputWeights::sketch of a layer's output projection, weighted by the norm after it where there
/// is one: each row of it a sum of the projection's rows with random signs, which are the same for
/// every layer and model.
std::vector<float> output_sketch(const ModelLayer& layer) {
  const Matrix& matrix = layer.attention_output;
  std::vector<float> sketch(static_cast<std::size_t>(kSketchRows * matrix.inputs));
  std::vector<float> row(static_cast<std::size_t>(matrix.inputs));
  Random random(1);
  const float unit = 1 / std::sqrt(static_cast<float>(kSketchRows));
  const std::span<const float> norm = layer.post_attention_norm;
  for (std::int64_t output = 0; output < matrix.outputs; ++output) {
    const float weight = norm.empty() ? unit : unit * norm[static_cast<std::size_t>(output)];
    matrix.load_row(output, row);
    const std::uint64_t signs = random.next();
    for (std::int64_t r = 0; r < kSketchRows; ++r) {
      const float factor = (signs >> r & 1U) != 0 ? weight : -weight;
      float* to = sketch.data() + r * matrix.inputs;
      for (std::int64_t i = 0; i < matrix.inputs; ++i) {
        to[i] += factor * row[static_cast<std::size_t>(i)];
      }
    }
  }
  return sketch;
}

}  // namespace

void TraceRows::write(bool all) {
  for (auto& [key, heads] : pending_) {
    for (std::size_t head = 0; head < heads.size(); ++head) {
      std::vector<Half>& rows = heads[head];
      const std::int64_t width =
          key.second == LayerTensor::kAttentionInput ? info_.hidden_size : info_.head_dim;
      if (rows.empty() || (!all && std::ssize(rows) < kPendingRows * width)) continue;
      writer_.append(key.first, key.second, static_cast<std::int64_t>(head), rows);
      rows.clear();
    }
  }
}

std::int64_t TraceRows::index_of(std::int64_t layer) const {
  const std::vector<std::int64_t>& layers = info_.recorded_layers;
  const auto found = std::lower_bound(layers.begin(), layers.end(), layer);
  return found == layers.end() || *found != layer ? -1 : found - layers.begin();
}

void TraceRows::keep_residual_norms(std::int64_t layer, std::span<const float> norms) {
  const std::int64_t index = index_of(layer);
  if (index < 0) return;
  std::vector<float>& kept = residual_norms_[index];
  kept.insert(kept.end(), norms.begin(), norms.end());
}

void TraceRows::write_output_weights(const Model& model) {
  std::vector<OutputWeights> weights(residual_norms_.size());
  pool_.run(std::ssize(weights), [&](std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    weights[at] = {output_sketch(model.layer(info_.recorded_layers[at])),
                   std::move(residual_norms_.at(index))};
  });
  for (std::size_t i = 0; i < weights.size(); ++i) {
    writer_.write_output_weights(static_cast<std::int64_t>(i), weights[i]);
  }
}

void TraceRows::keep(const LayerBatch& batch) {
  const std::int64_t index = index_of(batch.layer);
  if (index < 0) return;
  const std::int64_t dim = architecture_.head_dim;
  keep(index, LayerTensor::kKey, batch, batch.keys, architecture_.kv_heads, dim);
  keep(index, LayerTensor::kValue, batch, batch.values, architecture_.kv_heads, dim);
  if (!in_queries_) return;
  keep(index, LayerTensor::kQuery, batch, batch.queries, architecture_.query_heads, dim);
  if (queries_.ahead) {
    keep(index, LayerTensor::kQueryAhead, batch, batch.queries_ahead, architecture_.query_heads,
         dim);
  }
  if (queries_.attention_input) {
    keep(index, LayerTensor::kAttentionInput, batch, batch.attention_input, 1,
         architecture_.hidden_size);
  }
}

void TraceRows::keep(std::int64_t index, LayerTensor tensor, const LayerBatch& batch,
                     const float* rows, std::int64_t heads, std::int64_t width) {
  std::vector<std::vector<Half>>& pending = pending_[{index, tensor}];
  pending.resize(static_cast<std::size_t>(heads));
  pool_.run(heads, [&](std::int64_t head) {
    std::vector<Half>& to = pending[static_cast<std::size_t>(head)];
    const std::size_t before = to.size();
    to.resize(before + static_cast<std::size_t>(batch.rows * width));
    for (std::int64_t r = 0; r < batch.rows; ++r) {
      kernels::to_half(rows + (r * heads + head) * width,
                       to.data() + before + static_cast<std::size_t>(r * width), width);
    }
    const auto unbounded = std::find_if(to.begin() + static_cast<std::ptrdiff_t>(before), to.end(),
                                        [](Half half) { return (half.bits & 0x7c00U) == 0x7c00U; });
    if (unbounded != to.end()) {
      throw UserError({"record", "/layer/" + std::to_string(batch.layer)},
                      "a vector that half precision cannot hold, at a position from " +
                          std::to_string(batch.positions.front()),
                      "magnitudes up to 65504");
    }
  });
}

}  // namespace kvreplay
