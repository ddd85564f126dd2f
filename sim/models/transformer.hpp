// By hand: inference libraries do not let callers replace attention, and their results change with
// the batch.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "sim/models/model_file.hpp"
#include "traces/rope.hpp"

namespace kvreplay {

/// A layer's vectors for the rows of a batch, before attention: after biases, head norms and RoPE.
/// Row-major views, valid during the call.
struct LayerBatch {
  std::int64_t layer = 0;
  std::int64_t rows = 0;
  std::span<const std::int64_t> positions{};  ///< [rows]
  const float* attention_input = nullptr;     ///< [rows, hidden_size], normalised
  const float* queries = nullptr;             ///< [rows, query_heads * head_dim]
  const float* keys = nullptr;                ///< [rows, kv_heads * head_dim]
  const float* values = nullptr;              ///< [rows, kv_heads * head_dim]
  /// Like queries, but computed with this layer's norm, projection, head norm and RoPE from the
  /// residual stream at the attention of the previous layer. For the first layer these are its own
  /// queries. Null unless requested.
  const float* queries_ahead = nullptr;
};

/// Computes what stands between a layer's queries and its output projection.
class Attention {
 public:
  /// outputs: [rows, query_heads * head_dim].
  virtual void attend(const LayerBatch& batch, float* outputs) = 0;
  /// Whether the batch must hold queries_ahead, which cost one matrix product per layer.
  [[nodiscard]] virtual bool wants_queries_ahead() const { return false; }
  /// Called after a layer's attend(), where wants_residual_norms(): see
  /// Transformer::residual_norms().
  virtual void take_residual_norms(std::int64_t /*layer*/, std::span<const float> /*norms*/) {}
  [[nodiscard]] virtual bool wants_residual_norms() const { return false; }

 protected:
  ~Attention() = default;
};

/// Runs a model, in single precision, on batches of rows: consecutive positions of one sequence, or
/// one position of several sequences. Only the Attention knows which rows belong together. Every
/// sum has one fixed order, so a row's results have the same bits whatever the other rows and the
/// number of threads. Where a matrix's weights are integers, its rows are rounded to integers of 8
/// bits with a scale per 32 elements (integer_products.hpp).
class Transformer {
 public:
  /// Accepts positions up to max_tokens - 1. The model and the pool must outlive this object.
  Transformer(const Model& model, std::int64_t max_tokens, WorkerPool& pool);

  [[nodiscard]] const Model& model() const { return model_; }
  [[nodiscard]] WorkerPool& pool() const { return pool_; }

  /// The last layer's normalised output, [rows, hidden_size]; valid until the next call.
  [[nodiscard]] std::span<const float> run(std::span<const std::int32_t> ids,
                                           std::span<const std::int64_t> positions,
                                           Attention& attention);
  // run() in pieces, for a machine that does other things between them: begin(); of each layer in
  // order project() with all of its parts, then what stands between the queries and the output
  // projection, then finish_layer(); finish().

  /// What project() computes; a set.
  enum Part : unsigned { kQueries = 1, kKeyValues = 2, kQueriesAhead = 4 };
  void begin(std::span<const std::int32_t> ids, std::span<const std::int64_t> positions);
  /// Queries of the next layer but kQueriesAhead, which may be those of the layer behind it: what
  /// LayerBatch::queries_ahead is made of exists already.
  void project(std::int64_t layer, unsigned parts);
  /// Of the layer that was projected last.
  [[nodiscard]] LayerBatch batch(std::int64_t layer) const;
  /// Where attention puts its outputs, [rows, query_heads * head_dim].
  [[nodiscard]] std::span<float> attended() { return attended_; }
  void finish_layer();
  /// Of the layer finished last, [rows]: the 2-norm of the residual stream with attention's output
  /// added. Where that output is normalised before it is added, the norm is multiplied by the root
  /// mean square that it was divided by: an error of the output projection, weighted as the norm
  /// weights it, has the same share in both.
  [[nodiscard]] std::span<const float> residual_norms() const {
    return std::span<const float>(residual_norms_).first(static_cast<std::size_t>(rows_));
  }
  /// As run() returns it.
  [[nodiscard]] std::span<const float> finish();
  /// Frees the memory of the batch's rows, and with it all that was given out but the logits. The
  /// next begin() makes its own: after a long prompt, steps need little.
  void free_rows();

  /// Logits of `hidden` [rows, hidden_size], [rows, logit_stride]; valid until the next call.
  [[nodiscard]] std::span<const float> logits(std::span<const float> hidden);

  /// Rotates a head's vector to a position, as a layer does.
  void rotate(std::span<float> head, std::int64_t layer, std::int64_t position) const {
    rope_of_layer_[static_cast<std::size_t>(layer)]->rotate(head, position);
  }

 private:
  struct Product {
    const Matrix* matrix;
    const float* rows;
    float* products;
  };
  /// Rows as a matrix of integers takes them.
  struct IntegerBuffers {
    const float* rows = nullptr;
    std::vector<std::int8_t> values;
    std::vector<float> scales;
    std::vector<std::int32_t> sums;
    [[nodiscard]] kernels::IntegerRows from(std::int64_t row, std::int64_t groups) const {
      return {values.data() + row * groups * kernels::kGroup, scales.data() + row * groups,
              sums.data() + row * groups};
    }
  };
  void multiply(std::int64_t rows, std::span<const Product> products);
  void quantise(std::int64_t rows, std::span<const Product> products);
  void for_rows(std::int64_t rows, const std::function<void(std::int64_t)>& work);
  void embed(std::span<const std::int32_t> ids);
  void finish_rows(std::int64_t begin, std::int64_t rows);
  void norm_rows(const float* from, std::int64_t rows, std::span<const float> weights,
                 float* normed);
  /// Adds projected_ to rows of hidden_, normalised by `norm` where the model has one.
  void add_projected(std::int64_t begin, std::int64_t rows, std::span<const float> norm);
  /// Applies bias, head norm and RoPE to one row of heads.
  void finish_heads(float* row, std::int64_t heads, std::span<const float> bias,
                    std::span<const float> norm, std::int64_t layer, std::int64_t position) const;

  const Model& model_;
  WorkerPool& pool_;
  std::map<double, RotaryTable> ropes_;            // by base
  std::vector<const RotaryTable*> rope_of_layer_;  // [layers]

  // Of the batch that runs, [rows, ...].
  std::int64_t rows_ = 0;
  std::int64_t layer_ = 0;  // the next one to finish
  std::vector<std::int64_t> positions_;
  std::vector<float> hidden_;
  std::vector<float> normed_;
  std::vector<float> hidden_before_;  // as it entered the previous layer
  std::vector<float> ahead_normed_;
  std::vector<float> queries_;
  std::vector<float> queries_ahead_;
  std::vector<float> keys_;
  std::vector<float> values_;
  std::vector<float> attended_;
  std::vector<float> residual_norms_;
  // Of kChunkRows of them at most.
  std::vector<float> projected_;
  std::vector<float> gate_;
  std::vector<float> up_;
  std::vector<float> logits_;
  std::array<IntegerBuffers, 2>
      integers_;  // of the products that run; one for all of the same rows
};

}  // namespace kvreplay
