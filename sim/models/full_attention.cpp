#include "sim/models/full_attention.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kAttentionTaskRows = 64;

}  // namespace

FullAttention::FullAttention(const Architecture& architecture, std::int64_t max_tokens,
                             WorkerPool& pool)
    : architecture_(architecture), capacity_((max_tokens + 15) / 16 * 16), pool_(pool) {
  const auto size = static_cast<std::size_t>(architecture.kv_size() * capacity_);
  layers_.resize(static_cast<std::size_t>(architecture.layers));
  // Zeros, because entries beyond the last token are multiplied by weights of 0.
  for (LayerEntries& layer : layers_) layer = {std::vector<float>(size), std::vector<float>(size)};
}

void FullAttention::attend(const LayerBatch& batch, float* outputs) {
  assert(batch.positions.back() - batch.positions.front() + 1 == batch.rows);
  assert(batch.positions.back() < capacity_);
  pool_.run(architecture_.kv_heads, [&](std::int64_t head) { store(batch, head); });
  const std::int64_t blocks = (batch.rows + kAttentionTaskRows - 1) / kAttentionTaskRows;
  pool_.run(blocks * architecture_.query_heads, [&](std::int64_t task) {
    // The last rows come first because they see the most tokens.
    const std::int64_t block = blocks - 1 - task / architecture_.query_heads;
    attend_rows(batch, block * kAttentionTaskRows,
                std::min(batch.rows, (block + 1) * kAttentionTaskRows),
                task % architecture_.query_heads, outputs);
  });
}

void FullAttention::store(const LayerBatch& batch, std::int64_t kv_head) {
  LayerEntries& layer = layers_[static_cast<std::size_t>(batch.layer)];
  const std::int64_t dim = architecture_.head_dim;
  float* keys = layer.keys.data() + kv_head * capacity_ * dim;
  float* values = layer.values.data() + kv_head * capacity_ * dim;
  for (std::int64_t r = 0; r < batch.rows; ++r) {
    const std::int64_t token = batch.positions[static_cast<std::size_t>(r)];
    const float* key = batch.keys + r * architecture_.kv_size() + kv_head * dim;
    const float* value = batch.values + r * architecture_.kv_size() + kv_head * dim;
    for (std::int64_t d = 0; d < dim; ++d) {
      keys[(token / 16 * dim + d) * 16 + token % 16] = key[d];
      values[(d / 16 * capacity_ + token) * 16 + d % 16] = value[d];
    }
  }
}

void FullAttention::attend_rows(const LayerBatch& batch, std::int64_t begin, std::int64_t end,
                                std::int64_t query_head, float* outputs) const {
  const LayerEntries& layer = layers_[static_cast<std::size_t>(batch.layer)];
  const std::int64_t dim = architecture_.head_dim;
  const std::int64_t kv_head = query_head / (architecture_.query_heads / architecture_.kv_heads);
  const std::int64_t stride = architecture_.query_size();
  // Whole panels, starting with the one that holds the first token that a row sees.
  const std::int64_t first =
      architecture_.first_seen(batch.layer, batch.positions[static_cast<std::size_t>(begin)]) / 16 *
      16;
  const std::int64_t tokens = batch.positions[static_cast<std::size_t>(end - 1)] + 1 - first;
  const std::int64_t panels = (tokens + 15) / 16;
  const auto scale = static_cast<float>(architecture_.softmax_scale);

  std::vector<float> weights(static_cast<std::size_t>((end - begin) * panels * 16));
  kernels::multiply({.rows = batch.queries + begin * stride + query_head * dim,
                     .row_count = end - begin,
                     .row_stride = stride,
                     .depth = dim,
                     .panel_count = panels,
                     .panel_stride = dim * 16,
                     .products = weights.data(),
                     .product_stride = panels * 16},
                    layer.keys.data() + (kv_head * capacity_ + first) * dim);
  for (std::int64_t r = begin; r < end; ++r) {
    float* row = weights.data() + (r - begin) * panels * 16;
    const std::int64_t position = batch.positions[static_cast<std::size_t>(r)];
    const std::int64_t from = architecture_.first_seen(batch.layer, position) - first;
    const std::int64_t to = position + 1 - first;
    std::fill(row, row + from, 0.0F);
    kernels::softmax(row + from, to - from, scale);
    std::fill(row + to, row + panels * 16, 0.0F);
  }
  kernels::multiply({.rows = weights.data(),
                     .row_count = end - begin,
                     .row_stride = panels * 16,
                     .depth = tokens,
                     .panel_count = dim / 16,
                     .panel_stride = capacity_ * 16,
                     .products = outputs + begin * stride + query_head * dim,
                     .product_stride = stride},
                    layer.values.data() + kv_head * capacity_ * dim + first * 16);
}

}  // namespace kvreplay
