#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/config_folder.hpp"
#include "base/parameters.hpp"
#include "policies/place/place.hpp"

namespace kvreplay {

class LayerLists;

/// One decoder layer of a model. Weights are in elements; norms and biases are left out: under 0.1
/// % of a layer.
struct LayerSpec {
  bool attends = true;      ///< false: it has a state of fixed size in place of keys and values
  std::int64_t kind = 0;    ///< of ModelSpec::kv_kinds(), where it attends
  std::int64_t source = 0;  ///< the layer whose keys and values it uses: itself, or an earlier one
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t query_weights = 0;      ///< Wq, with that of an output gate; or all that a layer
                                       ///< without attention has in its place
  std::int64_t key_value_weights = 0;  ///< Wk and Wv; 0 where it uses an earlier layer's
  std::int64_t output_weights = 0;     ///< Wo
  std::int64_t ffn_weights = 0;        ///< gate, up and down of what every token passes through
  std::int64_t other_weights = 0;      ///< read at every step for anything else, routers included
  std::int64_t experts = 0;
  std::int64_t active_experts = 0;  ///< that a token passes through
  std::int64_t expert_weights = 0;  ///< gate, up and down of one expert
};

/// The shape of a decoder-only transformer with gated feed-forward layers, from
/// configs/models/NAME.json, and what follows from it for the cost of a layer (docs/models.md).
struct ModelSpec {
  [[nodiscard]] static std::span<const Parameter> parameters();
  /// Of the parameters, those that a file may give as a list, one value per layer.
  [[nodiscard]] static std::span<const std::string> parameters_by_layer();
  [[nodiscard]] static ModelSpec load(const std::string& file,
                                      const ConfigFolder& configs = ConfigFolder::standard());
  [[nodiscard]] static ModelSpec parse(const ConfigNode& node, std::string name);

  std::string name;
  std::string title;
  std::string source;    ///< may be empty
  std::string notes;     ///< may be empty
  Arguments arguments;   ///< of a list, the first value
  std::string by_layer;  ///< the lists, as canonical JSON; {} without any

  std::int64_t layers = 0;
  std::int64_t hidden_size = 0;
  // Of the first layer that attends.
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocabulary = 0;
  double weight_bits = 16;         ///< per weight, including its share of scales
  double expert_weight_bits = 16;  ///< per weight of an expert
  bool tied_embeddings = false;
  std::int64_t table_weights = 0;  ///< held, but only looked up: embeddings beside the usual ones
  std::int64_t state_bytes = 0;    ///< of one sequence in a layer that does not attend
  /// Length of the sequence that the recording stands for (sim/time/context_projection.hpp); 0 =
  /// its own length.
  std::int64_t context_tokens = 0;

  [[nodiscard]] const LayerSpec& layer(std::int64_t number) const {
    return layer_list_[static_cast<std::size_t>(number)];
  }
  /// Layers that attend.
  [[nodiscard]] std::int64_t attention_layers() const;
  /// The shapes that its layers' entries have, each once, in the order of the layers.
  [[nodiscard]] const std::vector<KvShape>& kv_kinds() const { return kinds_; }
  /// The only one, of a model whose layers are alike; the first one of others.
  [[nodiscard]] const KvShape& kv_shape() const { return kinds_.front(); }
  /// Whether the file says what each layer's queries see; otherwise they see what was recorded.
  [[nodiscard]] bool has_windows() const { return kinds_.front().sliding_window.has_value(); }

  // Weights, in elements.
  [[nodiscard]] std::int64_t head_weights() const { return vocabulary * hidden_size; }  ///< LM head
  /// Of the whole model, including the embedding table (which counts once where it is tied to the
  /// LM head).
  [[nodiscard]] std::int64_t weight_bytes() const;
  [[nodiscard]] double bytes_of(std::int64_t weights) const {
    return static_cast<double>(weights) * weight_bits / 8.0;
  }
  /// Experts of a layer that a step of `batch` tokens reads, on average: routes are taken to be
  /// even and independent.
  [[nodiscard]] static double experts_read(const LayerSpec& layer, std::int64_t batch);

 private:
  void add_layers(const LayerLists& lists, const std::vector<bool>& attends);
  void add_attention(LayerSpec& layer, const LayerLists& lists, std::int64_t number, bool shares);

  std::vector<LayerSpec> layer_list_;
  std::vector<KvShape> kinds_;
};

}  // namespace kvreplay
