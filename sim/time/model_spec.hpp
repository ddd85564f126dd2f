#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/config.hpp"
#include "base/parameters.hpp"
#include "policies/place/place.hpp"

namespace kvreplay {

/// The shape of a decoder-only transformer with gated feed-forward layers (LLaMA, Qwen2, SmolLM2),
/// from configs/models/NAME.json, and what follows from it for the cost of one layer.
struct ModelSpec {
  [[nodiscard]] static std::span<const Parameter> parameters();
  [[nodiscard]] static ModelSpec load(const std::string& file);
  [[nodiscard]] static ModelSpec parse(const ConfigNode& node, std::string name);

  std::string name;
  std::string title;
  std::string source;
  Arguments arguments;

  std::int64_t layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn_size = 0;
  std::int64_t vocabulary = 0;
  double weight_bits = 16;  ///< per weight, including its share of scales
  bool tied_embeddings = false;
  /// Length of the sequence that the recording stands for (sim/time/context_projection.hpp); 0 =
  /// its own length.
  std::int64_t context_tokens = 0;

  [[nodiscard]] KvShape kv_shape() const { return {layers, query_heads, kv_heads, head_dim}; }

  // Weights, in elements. Norms and biases are left out: under 0.1 % of a layer.
  [[nodiscard]] std::int64_t qkv_weights() const;     ///< of one layer: Wq, Wk, Wv
  [[nodiscard]] std::int64_t output_weights() const;  ///< of one layer: Wo
  [[nodiscard]] std::int64_t ffn_weights() const;     ///< of one layer: gate, up, down
  [[nodiscard]] std::int64_t head_weights() const;    ///< the LM head
  /// Of the whole model, including the embedding table (which counts once where it is tied to the
  /// LM head).
  [[nodiscard]] std::int64_t weight_bytes() const;
  [[nodiscard]] double bytes_of(std::int64_t weights) const {
    return static_cast<double>(weights) * weight_bits / 8.0;
  }
};

}  // namespace kvreplay
