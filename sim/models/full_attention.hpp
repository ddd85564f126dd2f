#pragma once

#include <cstdint>
#include <vector>

#include "sim/models/transformer.hpp"

namespace kvreplay {

/// Full causal attention of one sequence, within each layer's sliding window where it has one. Keys
/// and values are kept in single precision. Batches are consecutive positions, from 0 on. A
/// position's output has the same bits whether its batch has one row or many.
class FullAttention final : public Attention {
 public:
  FullAttention(const Architecture& architecture, std::int64_t max_tokens, WorkerPool& pool);

  void attend(const LayerBatch& batch, float* outputs) override;

 private:
  /// A layer's entries so far, by KV head. Keys are in panels of 16 tokens, [tokens / 16, head_dim,
  /// 16]; values are in panels of 16 dimensions, [head_dim / 16, tokens, 16].
  struct LayerEntries {
    std::vector<float> keys;
    std::vector<float> values;
  };
  void store(const LayerBatch& batch, std::int64_t kv_head);
  /// Attends for rows [begin, end) of the batch and one query head.
  void attend_rows(const LayerBatch& batch, std::int64_t begin, std::int64_t end,
                   std::int64_t query_head, float* outputs) const;

  Architecture architecture_;
  std::int64_t capacity_;  // tokens, in whole panels
  WorkerPool& pool_;
  std::vector<LayerEntries> layers_;
};

}  // namespace kvreplay
