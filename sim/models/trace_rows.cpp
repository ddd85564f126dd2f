#include "sim/models/trace_rows.hpp"

#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kPendingRows = 64;  // rows that wait for one write to the trace

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

void TraceRows::keep(const LayerBatch& batch) {
  const auto found =
      std::lower_bound(info_.recorded_layers.begin(), info_.recorded_layers.end(), batch.layer);
  if (found == info_.recorded_layers.end() || *found != batch.layer) return;
  const std::int64_t index = found - info_.recorded_layers.begin();
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
