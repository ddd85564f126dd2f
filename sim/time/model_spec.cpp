#include "sim/time/model_spec.hpp"

#include <array>
#include <cmath>
#include <filesystem>
#include <vector>

#include "base/error.hpp"

namespace kvreplay {

std::span<const Parameter> ModelSpec::parameters() {
  static const std::array kParameters{
      integer_parameter("layers", "", std::nullopt, {1, 1024}, "decoder layers"),
      integer_parameter("hidden_size", "", std::nullopt, {1, 1 << 20}, "width of the hidden state"),
      integer_parameter("query_heads", "", std::nullopt, {1, 4096}, "query heads per layer"),
      integer_parameter("kv_heads", "", std::nullopt, {1, 4096},
                        "key and value heads per layer; divides query_heads"),
      integer_parameter("head_dim", "", std::nullopt, {1, 4096}, "elements of one head's key"),
      integer_parameter("ffn_size", "", std::nullopt, {1, 1 << 24},
                        "inner width of the gated feed-forward layer"),
      integer_parameter("vocabulary", "", std::nullopt, {1, 1 << 24}, "rows of the LM head"),
      real_parameter("weight_bits", "bits", 16, {1, 32},
                     "bits per weight as stored, including scales"),
      flag_parameter("tied_embeddings", std::nullopt, "the LM head is the embedding table"),
      integer_parameter("context_tokens", "tokens", 0, {0, 1e9},
                        "length of the sequence that the recording stands for; 0 = its own length"),
  };
  return kParameters;
}

ModelSpec ModelSpec::load(const std::string& file) {
  return parse(ConfigNode::load(file), std::filesystem::path(file).stem().string());
}

ModelSpec ModelSpec::parse(const ConfigNode& node, std::string name) {
  static const std::vector<std::string> kOthers{"title", "source"};
  ModelSpec model;
  model.name = std::move(name);
  model.arguments = parse_arguments(node, parameters(), kOthers);
  model.title = node.at("title").text();
  model.source = node.at("source").text();
  const Arguments& given = model.arguments;
  model.layers = given.integer("layers");
  model.hidden_size = given.integer("hidden_size");
  model.query_heads = given.integer("query_heads");
  model.kv_heads = given.integer("kv_heads");
  model.head_dim = given.integer("head_dim");
  model.ffn_size = given.integer("ffn_size");
  model.vocabulary = given.integer("vocabulary");
  model.weight_bits = given.real("weight_bits");
  model.tied_embeddings = given.flag("tied_embeddings");
  model.context_tokens = given.integer("context_tokens");
  if (model.query_heads % model.kv_heads != 0) {
    throw UserError(given.place("query_heads"), "found " + std::to_string(model.query_heads),
                    "a multiple of kv_heads, " + std::to_string(model.kv_heads));
  }
  return model;
}

std::int64_t ModelSpec::qkv_weights() const {
  return hidden_size * (query_heads + 2 * kv_heads) * head_dim;
}
std::int64_t ModelSpec::output_weights() const {
  return query_heads * head_dim * hidden_size;
}
std::int64_t ModelSpec::ffn_weights() const {
  return 3 * hidden_size * ffn_size;
}
std::int64_t ModelSpec::head_weights() const {
  return vocabulary * hidden_size;
}

std::int64_t ModelSpec::weight_bytes() const {
  const std::int64_t tables = tied_embeddings ? 1 : 2;
  const std::int64_t weights =
      layers * (qkv_weights() + output_weights() + ffn_weights()) + tables * head_weights();
  return static_cast<std::int64_t>(std::ceil(bytes_of(weights)));
}

}  // namespace kvreplay
