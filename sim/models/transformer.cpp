#include "sim/models/transformer.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <utility>

#include "base/free_memory.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kTaskPanels = 4;
constexpr std::int64_t kTaskRows = 128;
/// Rows of a layer's second half at once: its buffers are the widest of all.
constexpr std::int64_t kChunkRows = 4 * kTaskRows;

std::int64_t blocks(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block;
}

template <typename T>
void grow(std::vector<T>& buffer, std::int64_t size) {
  if (std::ssize(buffer) < size) buffer.resize(static_cast<std::size_t>(size));
}

/// to = x / sqrt(mean(x^2) + epsilon) * weights. (Zhang and Sennrich 2019)
void rms_norm(const float* x, std::span<const float> weights, double epsilon, float* to) {
  const std::int64_t size = std::ssize(weights);
  const double mean = static_cast<double>(kernels::dot(x, x, size)) / static_cast<double>(size);
  const auto scale = static_cast<float>(1 / std::sqrt(mean + epsilon));
  for (std::int64_t i = 0; i < size; ++i) to[i] = x[i] * scale * weights.data()[i];
}

}  // namespace

Transformer::Transformer(const Model& model, std::int64_t max_tokens, WorkerPool& pool)
    : model_(model), pool_(pool) {
  const Architecture& a = model.architecture();
  for (const double theta : a.rope_theta) {
    const RotaryEmbedding rope(theta, a.rope_interleaved, a.head_dim, model.rope_factors());
    rope_of_layer_.push_back(&ropes_.try_emplace(theta, rope, max_tokens).first->second);
  }
}

std::span<const float> Transformer::run(std::span<const std::int32_t> ids,
                                        std::span<const std::int64_t> positions,
                                        Attention& attention) {
  const bool ahead = attention.wants_queries_ahead();
  begin(ids, positions);
  for (std::int64_t index = 0; index < model_.architecture().layers; ++index) {
    project(index, kQueries | kKeyValues | (ahead ? kQueriesAhead : 0U));
    LayerBatch layer = batch(index);
    if (!ahead) layer.queries_ahead = nullptr;
    attention.attend(layer, attended_.data());
    finish_layer();
    if (attention.wants_residual_norms()) attention.take_residual_norms(index, residual_norms());
  }
  return finish();
}

void Transformer::begin(std::span<const std::int32_t> ids,
                        std::span<const std::int64_t> positions) {
  assert(ids.size() == positions.size() && !ids.empty());
  const Architecture& a = model_.architecture();
  rows_ = std::ssize(ids);
  layer_ = 0;
  positions_.assign(positions.begin(), positions.end());
  for (const auto& [buffer, width] : {std::pair{&hidden_, a.hidden_size},
                                      {&hidden_before_, a.hidden_size},
                                      {&normed_, a.hidden_size},
                                      {&queries_, a.query_size()},
                                      {&keys_, a.kv_size()},
                                      {&values_, a.kv_size()},
                                      {&attended_, a.query_size()},
                                      {&residual_norms_, 1}}) {
    grow(*buffer, rows_ * width);
  }
  const std::int64_t chunk = std::min(rows_, kChunkRows);
  grow(projected_, chunk * a.hidden_size);
  grow(gate_, chunk * a.ffn_size);
  grow(up_, chunk * a.ffn_size);
  embed(ids);
}

void Transformer::project(std::int64_t index, unsigned parts) {
  assert(index == layer_ || (index == layer_ + 1 && parts == kQueriesAhead));
  const Architecture& a = model_.architecture();
  const ModelLayer& layer = model_.layer(index);
  std::vector<Product> products;
  if ((parts & (kQueries | kKeyValues)) != 0) {
    norm_rows(hidden_.data(), rows_, layer.attention_norm, normed_.data());
  }
  if ((parts & kQueries) != 0) products.push_back({&layer.query, normed_.data(), queries_.data()});
  if ((parts & kKeyValues) != 0) {
    products.push_back({&layer.key, normed_.data(), keys_.data()});
    products.push_back({&layer.value, normed_.data(), values_.data()});
  }
  if ((parts & kQueriesAhead) != 0) {
    const bool earlier = index == layer_ && index > 0;
    grow(ahead_normed_, rows_ * a.hidden_size);
    grow(queries_ahead_, rows_ * a.query_size());
    norm_rows((earlier ? hidden_before_ : hidden_).data(), rows_, layer.attention_norm,
              ahead_normed_.data());
    products.push_back({&layer.query, ahead_normed_.data(), queries_ahead_.data()});
  }
  multiply(rows_, products);
  for_rows(rows_, [&](std::int64_t r) {
    const std::int64_t position = positions_[static_cast<std::size_t>(r)];
    const auto finish_queries = [&](std::vector<float>& queries) {
      finish_heads(queries.data() + r * a.query_size(), a.query_heads, layer.query_bias,
                   layer.query_norm, index, position);
    };
    if ((parts & kQueries) != 0) finish_queries(queries_);
    if ((parts & kQueriesAhead) != 0) finish_queries(queries_ahead_);
    if ((parts & kKeyValues) == 0) return;
    finish_heads(keys_.data() + r * a.kv_size(), a.kv_heads, layer.key_bias, layer.key_norm, index,
                 position);
    for (std::size_t i = 0; i < layer.value_bias.size(); ++i) {
      values_[static_cast<std::size_t>(r * a.kv_size()) + i] += layer.value_bias[i];
    }
  });
}

LayerBatch Transformer::batch(std::int64_t layer) const {
  return {.layer = layer,
          .rows = rows_,
          .positions = positions_,
          .attention_input = normed_.data(),
          .queries = queries_.data(),
          .keys = keys_.data(),
          .values = values_.data(),
          .queries_ahead = queries_ahead_.data()};
}

void Transformer::finish_layer() {
  const Architecture& a = model_.architecture();
  std::copy_n(hidden_.begin(), rows_ * a.hidden_size, hidden_before_.begin());
  for (std::int64_t begin = 0; begin < rows_; begin += kChunkRows) {
    finish_rows(begin, std::min(kChunkRows, rows_ - begin));
  }
  ++layer_;
}

/// What finish_layer() does with some rows. projected_, gate_ and up_ begin with the first of them.
void Transformer::finish_rows(std::int64_t begin, std::int64_t rows) {
  const Architecture& a = model_.architecture();
  const ModelLayer& layer = model_.layer(layer_);
  float* hidden = hidden_.data() + begin * a.hidden_size;
  float* normed = normed_.data() + begin * a.hidden_size;
  float* residual_norms = residual_norms_.data() + begin;
  multiply(rows, std::array{Product{&layer.attention_output,
                                    attended_.data() + begin * a.query_size(), projected_.data()}});
  const bool has_norm = !layer.post_attention_norm.empty();
  const auto norm_of = [&](const float* of_rows, std::int64_t r) {
    const float* row = of_rows + r * a.hidden_size;
    return std::sqrt(static_cast<double>(kernels::dot(row, row, a.hidden_size)));
  };
  for_rows(rows, [&](std::int64_t r) {
    residual_norms[r] = has_norm ? static_cast<float>(norm_of(projected_.data(), r) /
                                                      std::sqrt(static_cast<double>(a.hidden_size)))
                                 : 1.0F;
  });
  add_projected(begin, rows, layer.post_attention_norm);
  for_rows(rows,
           [&](std::int64_t r) { residual_norms[r] *= static_cast<float>(norm_of(hidden, r)); });

  norm_rows(hidden, rows, layer.ffn_norm, normed);
  multiply(rows, std::array{Product{&layer.gate, normed, gate_.data()},
                            Product{&layer.up, normed, up_.data()}});
  for_rows(rows, [&](std::int64_t r) {
    (a.gelu ? kernels::gelu_multiply : kernels::silu_multiply)(
        gate_.data() + r * a.ffn_size, up_.data() + r * a.ffn_size, a.ffn_size);
  });
  multiply(rows, std::array{Product{&layer.down, gate_.data(), projected_.data()}});
  add_projected(begin, rows, layer.post_ffn_norm);
}

void Transformer::free_rows() {
  for (std::vector<float>* buffer :
       {&hidden_, &normed_, &hidden_before_, &ahead_normed_, &queries_, &queries_ahead_, &keys_,
        &values_, &attended_, &projected_, &residual_norms_, &gate_, &up_}) {
    free_memory(*buffer);
  }
  integers_ = {};
}

std::span<const float> Transformer::finish() {
  const std::int64_t size = model_.architecture().hidden_size;
  norm_rows(hidden_.data(), rows_, model_.output_norm(), normed_.data());
  return std::span<const float>(normed_).first(static_cast<std::size_t>(rows_ * size));
}

std::span<const float> Transformer::logits(std::span<const float> hidden) {
  const Architecture& a = model_.architecture();
  const std::int64_t rows = std::ssize(hidden) / a.hidden_size;
  grow(logits_, rows * a.logit_stride());
  multiply(rows, std::array{Product{&model_.output(), hidden.data(), logits_.data()}});
  return std::span<const float>(logits_).first(static_cast<std::size_t>(rows * a.logit_stride()));
}

void Transformer::quantise(std::int64_t rows, std::span<const Product> products) {
  for (IntegerBuffers& buffers : integers_) buffers.rows = nullptr;
  for (const Product& product : products) {
    if (product.matrix->integer_bits() == 0) continue;
    const std::int64_t inputs = product.matrix->inputs;
    const std::int64_t groups = product.matrix->groups();
    IntegerBuffers& to =
        integers_[integers_[0].rows == nullptr || integers_[0].rows == product.rows ? 0 : 1];
    if (to.rows == product.rows) continue;
    to.rows = product.rows;
    grow(to.values, rows * groups * kernels::kGroup);
    grow(to.scales, rows * groups);
    grow(to.sums, rows * groups);
    for_rows(rows, [&](std::int64_t r) {
      kernels::quantise_row(product.rows + r * inputs, inputs,
                            to.values.data() + r * groups * kernels::kGroup,
                            to.scales.data() + r * groups, to.sums.data() + r * groups);
    });
  }
}

void Transformer::multiply(std::int64_t rows, std::span<const Product> products) {
  quantise(rows, products);
  const std::int64_t row_blocks = blocks(rows, kTaskRows);
  std::int64_t tasks = 0;
  for (const Product& product : products) {
    tasks += row_blocks * blocks(product.matrix->panels(), kTaskPanels);
  }
  pool_.run(tasks, [&](std::int64_t task) {
    const Product* product = products.data();
    std::int64_t here = 0;
    while (task >= (here = row_blocks * blocks(product->matrix->panels(), kTaskPanels))) {
      task -= here;
      ++product;
    }
    const Matrix& matrix = *product->matrix;
    const std::int64_t panel = task / row_blocks * kTaskPanels;
    const std::int64_t row = task % row_blocks * kTaskRows;
    const std::int64_t stride = matrix.panels() * 16;
    if (const int bits = matrix.integer_bits(); bits > 0) {
      const IntegerBuffers& from = integers_[integers_[0].rows == product->rows ? 0 : 1];
      const std::int64_t groups = matrix.groups();
      kernels::multiply({.rows = from.from(row, groups),
                         .row_count = std::min(kTaskRows, rows - row),
                         .groups = groups,
                         .panel_count = std::min(kTaskPanels, matrix.panels() - panel),
                         .products = product->products + row * stride + panel * 16,
                         .product_stride = stride},
                        {matrix.integers.weights + panel * groups * 64 * bits,
                         matrix.integers.scales + panel * groups * 16},
                        bits);
      return;
    }
    const kernels::PanelProduct part{.rows = product->rows + row * matrix.inputs,
                                     .row_count = std::min(kTaskRows, rows - row),
                                     .row_stride = matrix.inputs,
                                     .depth = matrix.inputs,
                                     .panel_count = std::min(kTaskPanels, matrix.panels() - panel),
                                     .panel_stride = 16 * matrix.inputs,
                                     .products = product->products + row * stride + panel * 16,
                                     .product_stride = stride};
    const std::int64_t first = panel * part.panel_stride;
    if (matrix.floats != nullptr) {
      kernels::multiply(part, matrix.floats + first);
    } else {
      kernels::multiply(part, matrix.bfloats + first);
    }
  });
}

/// A few rows per task.
void Transformer::for_rows(std::int64_t rows, const std::function<void(std::int64_t)>& work) {
  constexpr std::int64_t kRows = 8;
  pool_.run(blocks(rows, kRows), [&](std::int64_t task) {
    for (std::int64_t r = task * kRows; r < std::min(rows, (task + 1) * kRows); ++r) work(r);
  });
}

void Transformer::embed(std::span<const std::int32_t> ids) {
  const Matrix& table = model_.embedding();
  const auto scale = static_cast<float>(model_.architecture().embedding_scale);
  for (std::size_t r = 0; r < ids.size(); ++r) {
    assert(ids[r] >= 0 && ids[r] < table.outputs);
    const auto row = std::span(hidden_).subspan(r * static_cast<std::size_t>(table.inputs),
                                                static_cast<std::size_t>(table.inputs));
    table.load_row(ids[r], row);
    for (float& value : row) value *= scale;
  }
}

void Transformer::norm_rows(const float* from, std::int64_t rows, std::span<const float> weights,
                            float* normed) {
  const std::int64_t size = std::ssize(weights);
  for_rows(rows, [&](std::int64_t r) {
    rms_norm(from + r * size, weights, model_.architecture().norm_epsilon, normed + r * size);
  });
}

void Transformer::add_projected(std::int64_t begin, std::int64_t rows,
                                std::span<const float> norm) {
  const Architecture& a = model_.architecture();
  for_rows(rows, [&](std::int64_t r) {
    float* to = hidden_.data() + (begin + r) * a.hidden_size;
    float* from = projected_.data() + r * a.hidden_size;
    if (!norm.empty()) rms_norm(from, norm, a.norm_epsilon, from);
    for (std::int64_t i = 0; i < a.hidden_size; ++i) to[i] += from[i];
  });
}

void Transformer::finish_heads(float* row, std::int64_t heads, std::span<const float> bias,
                               std::span<const float> norm, std::int64_t layer,
                               std::int64_t position) const {
  const Architecture& a = model_.architecture();
  for (std::size_t i = 0; i < bias.size(); ++i) row[i] += bias[i];
  for (std::int64_t head = 0; head < heads; ++head) {
    float* vector = row + head * a.head_dim;
    if (!norm.empty()) rms_norm(vector, norm, a.norm_epsilon, vector);
    rotate(std::span(vector, static_cast<std::size_t>(a.head_dim)), layer, position);
  }
}

}  // namespace kvreplay
