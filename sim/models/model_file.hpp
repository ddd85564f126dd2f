// By hand: a safetensors file is a length, JSON and bytes to map, and no library for it is in C++.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/parameters.hpp"
#include "policies/kernels/integer_products.hpp"
#include "policies/kernels/table.hpp"

namespace kvreplay {

class MappedFile;

/// A decoder of the llama family: RMSNorm, RoPE on whole heads, grouped-query attention, a gated
/// feed-forward layer.
struct Architecture {
  /// Properties as the model file declares them, apart from those by layer. Loading checks their
  /// ranges.
  [[nodiscard]] static std::span<const Parameter> parameters();

  std::int64_t layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t ffn_size = 0;
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocabulary = 0;
  std::int64_t context_tokens = 0;  ///< positions that the model was trained for
  double norm_epsilon = 0;
  std::vector<double> rope_theta;            ///< [layers]
  std::vector<std::int64_t> sliding_window;  ///< [layers]: latest tokens that a query sees; 0 = all
  bool rope_interleaved = false;  ///< pairs (2i, 2i + 1), otherwise (i, i + head_dim / 2)
  std::string rope_scaling;       ///< "none", or how the factors of the frequencies were computed
  bool gelu = false;              ///< GeGLU with tanh's approximation, otherwise SwiGLU
  double embedding_scale = 1;     ///< factor on a token's embedding
  double softmax_scale = 0;       ///< factor on q . k

  [[nodiscard]] std::int64_t query_size() const { return query_heads * head_dim; }
  [[nodiscard]] std::int64_t kv_size() const { return kv_heads * head_dim; }
  /// The first token that a query at `position` sees.
  [[nodiscard]] std::int64_t first_seen(std::int64_t layer, std::int64_t position) const {
    const std::int64_t window = sliding_window[static_cast<std::size_t>(layer)];
    return window > 0 ? std::max<std::int64_t>(0, position + 1 - window) : 0;
  }
  /// The vocabulary padded to whole panels: the width of a row of logits.
  [[nodiscard]] std::int64_t logit_stride() const { return (vocabulary + 15) / 16 * 16; }
};

/// A matrix [outputs, inputs] in panels of 16 outputs, [outputs / 16, inputs, 16], padded with rows
/// of zeros; integers are in groups within a panel (integer_products.hpp). It is a view into the
/// model file: `type` says which of the pointers are set.
struct Matrix {
  enum class Type { kFloat, kBFloat, kInteger8, kInteger4 };

  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  Type type = Type::kFloat;
  const float* floats = nullptr;
  const kernels::BFloat* bfloats = nullptr;
  kernels::IntegerPanels integers{};

  [[nodiscard]] std::int64_t panels() const { return (outputs + 15) / 16; }
  /// Of inputs that share a scale.
  [[nodiscard]] std::int64_t groups() const {
    return (inputs + kernels::kGroup - 1) / kernels::kGroup;
  }
  /// 8 or 4, or 0 where weights are floats.
  [[nodiscard]] int integer_bits() const {
    return type == Type::kInteger8 ? 8 : type == Type::kInteger4 ? 4 : 0;
  }
  /// Per weight, with its share of the scale.
  [[nodiscard]] double weight_bits() const {
    if (const int bits = integer_bits(); bits > 0) return bits + 16.0 / kernels::kGroup;
    return type == Type::kFloat ? 32 : 16;
  }
  [[nodiscard]] std::int64_t bytes() const {
    const int bits = integer_bits();
    return bits > 0 ? panels() * groups() * (64 * bits + 32)
                    : panels() * 16 * inputs * (type == Type::kFloat ? 4 : 2);
  }
  [[nodiscard]] bool same_data(const Matrix& other) const {
    return floats == other.floats && bfloats == other.bfloats &&
           integers.weights == other.integers.weights;
  }
  /// What one output is made with, [inputs].
  void load_row(std::int64_t output, std::span<float> row) const;

 private:
  void load_integers(std::int64_t output, std::span<float> row) const;
};

struct ModelLayer {
  std::span<const float> attention_norm;  ///< [hidden_size]
  std::span<const float> ffn_norm;        ///< [hidden_size]
  Matrix query;                           ///< [query_size, hidden_size]
  Matrix key;                             ///< [kv_size, hidden_size]
  Matrix value;                           ///< [kv_size, hidden_size]
  Matrix attention_output;                ///< [hidden_size, query_size]
  Matrix gate;                            ///< [ffn_size, hidden_size]
  Matrix up;                              ///< [ffn_size, hidden_size]
  Matrix down;                            ///< [hidden_size, ffn_size]
  // Empty where the model has none.
  std::span<const float> query_bias;  ///< [query_size]
  std::span<const float> key_bias;    ///< [kv_size]
  std::span<const float> value_bias;  ///< [kv_size]
  std::span<const float> query_norm;  ///< [head_dim], of each head before RoPE
  std::span<const float> key_norm;    ///< [head_dim]
  /// Norms of what attention and the feed-forward layer add to the residual stream.
  std::span<const float> post_attention_norm;  ///< [hidden_size]
  std::span<const float> post_ffn_norm;        ///< [hidden_size]
};

/// A model file (docs/recording.md), memory-mapped: a safetensors file with a fixed set of tensors.
class Model {
 public:
  /// Checks the header, and each tensor's type, shape and bounds. A UserError names the tensor.
  explicit Model(const std::string& file);
  ~Model();
  Model(Model&&) noexcept;

  [[nodiscard]] const std::string& file() const { return file_; }
  /// Throws UserError when the file was changed since it was opened.
  void check_unchanged() const;
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Hash of the file that was imported.
  [[nodiscard]] const std::string& source_sha256() const { return source_sha256_; }
  [[nodiscard]] const std::string& tokenizer_name() const { return tokenizer_name_; }
  /// Whether the file holds a tokenizer.
  [[nodiscard]] bool has_tokenizer() const { return has_tokenizer_; }

  [[nodiscard]] const Architecture& architecture() const { return architecture_; }
  [[nodiscard]] const ModelLayer& layer(std::int64_t index) const {
    return layers_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] const Matrix& embedding() const { return embedding_; }
  /// The LM head, which is the embedding where the two are tied.
  [[nodiscard]] const Matrix& output() const { return output_; }
  [[nodiscard]] std::span<const float> output_norm() const { return output_norm_; }
  /// [head_dim / 2], divisors of the frequencies; empty without scaling.
  [[nodiscard]] std::span<const float> rope_factors() const { return rope_factors_; }
  /// Number of weights in the matrices that every token passes through, including the LM head.
  [[nodiscard]] std::int64_t weight_bytes() const;

 private:
  class Reader;

  std::string file_;
  std::string name_;
  std::string source_sha256_;
  std::string tokenizer_name_;
  bool has_tokenizer_ = false;
  Architecture architecture_;
  std::vector<ModelLayer> layers_;
  Matrix embedding_;
  Matrix output_;
  std::span<const float> output_norm_;
  std::span<const float> rope_factors_;
  std::unique_ptr<MappedFile> mapping_;
};

}  // namespace kvreplay
