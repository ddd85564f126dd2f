#include "sim/time/model_config.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace kvreplay {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// What a config.json leaves to the code of its model type (transformers 5.24.0).
struct Type {
  bool tied = false;      ///< default of tie_word_embeddings
  bool gated_ffn = true;  ///< three matrices; otherwise two
  int full_every = 0;     ///< default of sliding_window_pattern; 0: all layers alike
};
const std::map<std::string, Type, std::less<>>& types() {
  static const std::map<std::string, Type, std::less<>> kTypes{
      {"arcee", {.gated_ffn = false}},
      {"cohere", {.tied = true}},
      {"cohere2", {.tied = true, .full_every = 4}},
      {"ernie4_5", {.tied = true}},
      {"exaone4", {}},
      {"gemma", {.tied = true}},
      {"gemma2", {.tied = true, .full_every = 2}},
      {"gemma3_text", {.tied = true, .full_every = 6}},
      {"glm", {}},
      {"glm4", {}},
      {"gpt2", {.tied = true, .gated_ffn = false}},
      {"gpt_neox", {.gated_ffn = false}},
      {"gpt_oss", {.full_every = 2}},
      {"granite", {}},
      {"helium", {}},
      {"hunyuan_v1_dense", {}},
      {"internlm3", {}},
      {"lfm2", {.tied = true}},
      {"llama", {}},
      {"ministral", {}},
      {"ministral3", {}},
      {"mistral", {}},
      {"mixtral", {}},
      {"nemotron", {.gated_ffn = false}},
      {"olmo", {}},
      {"olmo2", {}},
      {"olmo3", {}},
      {"olmoe", {}},
      {"opt", {.tied = true, .gated_ffn = false}},
      {"phi", {.gated_ffn = false}},
      {"phi3", {}},
      {"qwen2", {}},
      {"qwen2_moe", {}},
      {"qwen3", {}},
      {"qwen3_5_text", {}},
      {"qwen3_moe", {}},
      {"qwen3_next", {}},
      {"seed_oss", {}},
      {"smollm3", {.tied = true}},
      {"stablelm", {}},
      {"starcoder2", {.tied = true, .gated_ffn = false}},
  };
  return kTypes;
}

/// Members that say a kind of model for which a model file has no members.
struct Refused {
  const char* member;
  const char* what;
};
constexpr Refused kRefused[] = {
    {"kv_lora_rank", "multi-head latent attention"},
    {"ssm_state_size", "state space layers"},
    {"mamba_d_state", "state space layers"},
    {"state_size", "state space layers"},
    {"altup_num_inputs", "layers with embeddings of their own (the preset gemma-3n-e2b has them)"},
    {"hidden_size_per_layer_input",
     "layers with embeddings of their own (the preset gemma-4-e2b has them)"},
};

class Converter {
 public:
  Converter(const ConfigNode& config, const std::string& source)
      : outer_(config), text_(config), source_(source + ", config.json: ") {
    if (config.has("text_config") && config.at("text_config").is_object()) {
      text_ = config.at("text_config");
      notes_.emplace_back("the text part of a model of several modalities");
    }
    if (given("model_type")) type_name_ = text_.at("model_type").text();
  }

  ConvertedModel convert(const std::string& title, const std::string& source) && {
    refuse();
    const auto known = types().find(type_name_);
    if (known != types().end()) {
      type_ = known->second;
    } else {
      notes_.push_back("model_type '" + type_name_ +
                       "' is not one that is known here: taken to be like Llama, with gated "
                       "feed-forward layers");
    }
    json_["title"] = title;
    json_["source"] = source + ", config.json";
    add_shape();
    add_feed_forward();
    add_rest(known != types().end());
    add_windows();
    return {json_.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n",
            std::move(notes_)};
  }

 private:
  /// Whether a member has a value; null counts as absent.
  [[nodiscard]] bool given(const std::string& name) const {
    return text_.has(name) && !text_.raw().at(name).is_null();
  }
  [[nodiscard]] std::optional<std::string> first_given(
      std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (given(name)) return name;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::int64_t whole(const std::string& name) const {
    const ConfigNode member = text_.at(name);
    const json& value = member.raw();
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0) {
      throw UserError(member.place(), "found " + value.dump().substr(0, 60), "a whole number");
    }
    return value.get<std::int64_t>();
  }
  void add(const std::string& member, json value, const std::string& from) {
    json_[member] = {{"value", std::move(value)}, {"source", source_ + from}};
  }
  /// Adds a member from the first of the names that the config has.
  std::int64_t add_first(const std::string& member, std::initializer_list<const char*> names) {
    const std::optional<std::string> name = first_given(names);
    if (!name) throw missing(*names.begin());
    const std::int64_t value = whole(*name);
    add(member, value, *name);
    return value;
  }
  [[nodiscard]] UserError missing(const std::string& name) const {
    std::string allowed = "the config.json of a decoder-only transformer";
    return {text_.place(), "required member '" + name + "' is missing", allowed};
  }

  void refuse() const {
    for (const Refused& refused : kRefused) {
      if (!given(refused.member)) continue;
      const json& value = text_.raw().at(refused.member);
      if (value.is_number() && value.get<double>() == 0) continue;
      throw UserError(
          text_.at(refused.member).place(),
          std::string("found ") + refused.what + ", which no member of a model file says",
          "attention with keys and values per head");
    }
    if (given("is_encoder_decoder") && text_.raw().at("is_encoder_decoder") == true) {
      throw UserError(text_.at("is_encoder_decoder").place(), "found an encoder",
                      "a decoder-only transformer");
    }
  }

  void add_shape() {
    // All that is missing in one message.
    std::vector<std::string> lacking;
    const auto need = [&](std::initializer_list<const char*> names) {
      if (!first_given(names)) lacking.emplace_back(*names.begin());
    };
    need({"num_hidden_layers", "n_layer", "num_layers"});
    need({"hidden_size", "n_embd", "d_model"});
    need({"num_attention_heads", "n_head"});
    need({"vocab_size"});
    if (!lacking.empty()) check_complete(text_, lacking);

    layers_ = add_first("layers", {"num_hidden_layers", "n_layer", "num_layers"});
    hidden_ = add_first("hidden_size", {"hidden_size", "n_embd", "d_model"});
    const std::int64_t heads = add_first("query_heads", {"num_attention_heads", "n_head"});
    if (const auto name = first_given({"num_key_value_heads", "num_kv_heads"})) {
      add("kv_heads", whole(*name), *name);
    } else {
      add("kv_heads", heads, "no num_key_value_heads: as many as query heads");
    }
    if (given("head_dim")) {
      add("head_dim", whole("head_dim"), "head_dim");
    } else if (heads > 0 && hidden_ % heads == 0) {
      add("head_dim", hidden_ / heads, "hidden_size / num_attention_heads");
    } else {
      throw missing("head_dim");
    }
  }

  /// A model file says a gated layer, of three matrices; one that has two counts as two thirds.
  void add_ffn(std::int64_t size, const std::string& from) {
    if (type_.gated_ffn) {
      add("ffn_size", size, from);
    } else {
      add("ffn_size", (2 * size + 2) / 3,
          from + " " + std::to_string(size) + ": two thirds, as it has two matrices of three");
    }
  }

  void add_feed_forward() {
    const auto experts = first_given({"num_experts", "num_local_experts", "n_routed_experts"});
    if (!experts || whole(*experts) <= 1) {
      if (given("block_ff_dim") && given("block_auto_adjust_ff_dim") &&
          text_.raw().at("block_auto_adjust_ff_dim") == true) {
        const std::int64_t multiple = given("block_multiple_of") ? whole("block_multiple_of") : 256;
        const std::int64_t size = 2 * whole("block_ff_dim") / 3;
        return add_ffn((size + multiple - 1) / multiple * multiple,
                       "block_ff_dim, block_auto_adjust_ff_dim, block_multiple_of: two thirds");
      }
      if (const auto name =
              first_given({"intermediate_size", "n_inner", "ffn_dim", "block_ff_dim"})) {
        return add_ffn(whole(*name), *name);
      }
      if (first_given({"n_embd", "d_model"})) {
        return add_ffn(4 * hidden_, "no n_inner: four times n_embd");
      }
      throw missing("intermediate_size");
    }
    const std::int64_t count = whole(*experts);
    const auto own_size = first_given({"moe_intermediate_size", "expert_ffn_size"});
    const std::string size_name = own_size.value_or("intermediate_size");
    if (!given(size_name)) throw missing("moe_intermediate_size");
    const auto active = first_given({"num_experts_per_tok", "num_experts_per_token", "moe_top_k"});
    if (!active) throw missing("num_experts_per_tok");

    std::int64_t shared = 0;
    std::string shared_from = *experts + ": every layer has experts alone";
    if (given("shared_expert_intermediate_size")) {
      shared = whole("shared_expert_intermediate_size");
      shared_from = "shared_expert_intermediate_size";
    } else if (given("n_shared_experts")) {
      shared = whole("n_shared_experts") * whole(size_name);
      shared_from = "n_shared_experts x " + size_name;
    }
    // Layers that have no experts have a feed-forward layer of the usual size.
    std::vector<bool> dense(static_cast<std::size_t>(layers_), false);
    if (given("first_k_dense_replace")) {
      for (std::int64_t i = 0; i < std::min(layers_, whole("first_k_dense_replace")); ++i) {
        dense[static_cast<std::size_t>(i)] = true;
      }
    }
    if (given("mlp_only_layers")) {
      for (const json& layer : text_.raw().at("mlp_only_layers")) {
        if (layer.is_number_integer() && layer >= 0 && layer < layers_) {
          dense[layer.get<std::size_t>()] = true;
        }
      }
    }
    if (given("decoder_sparse_step") && whole("decoder_sparse_step") > 1) {
      const std::int64_t step = whole("decoder_sparse_step");
      for (std::int64_t i = 0; i < layers_; ++i) {
        if ((i + 1) % step != 0) dense[static_cast<std::size_t>(i)] = true;
      }
    }
    if (std::find(dense.begin(), dense.end(), true) == dense.end()) {
      add("ffn_size", shared, shared_from);
      add("experts", count, *experts);
      add("active_experts", whole(*active), *active);
    } else {
      json sizes = json::array();
      json counts = json::array();
      json actives = json::array();
      for (const bool is_dense : dense) {
        sizes.push_back(is_dense ? whole("intermediate_size") : shared);
        counts.push_back(is_dense ? 0 : count);
        actives.push_back(is_dense ? 0 : whole(*active));
      }
      add("ffn_size", std::move(sizes), "intermediate_size, of the layers without experts");
      add("experts", std::move(counts), *experts);
      add("active_experts", std::move(actives), *active);
    }
    add("expert_ffn_size", whole(size_name), size_name);
  }

  void add_rest(bool type_is_known) {
    add_first("vocabulary", {"vocab_size"});
    add_weight_bits();
    const auto tied = first_given({"tie_word_embeddings", "tie_embedding"});
    const bool outer_has =
        outer_.has("tie_word_embeddings") && outer_.raw().at("tie_word_embeddings").is_boolean();
    if (tied && text_.raw().at(*tied).is_boolean()) {
      add("tied_embeddings", text_.raw().at(*tied), *tied);
    } else if (outer_has) {
      add("tied_embeddings", outer_.raw().at("tie_word_embeddings"), "tie_word_embeddings");
    } else if (type_is_known) {
      add("tied_embeddings", type_.tied,
          "no tie_word_embeddings: the default of " + type_name_ + " (transformers 5.24.0)");
    } else {
      throw UserError(
          text_.place(), "required member 'tie_word_embeddings' is missing",
          "true or false: the default of model_type '" + type_name_ + "' is not known here");
    }
    if (given("attn_output_gate") && text_.raw().at("attn_output_gate") == true) {
      add("gated_attention", true, "attn_output_gate");
    } else if (type_name_ == "qwen3_next") {
      add("gated_attention", true, "model_type qwen3_next");
    }
  }

  void add_weight_bits() {
    const auto has_outer = [&](const char* name) {
      return outer_.has(name) && !outer_.raw().at(name).is_null();
    };
    if (has_outer("quantization_config") && outer_.raw().at("quantization_config").is_object()) {
      const json& quantised = outer_.raw().at("quantization_config");
      const std::string method = quantised.value("quant_method", "");
      if (method == "mxfp4") {
        add("weight_bits", 16, "quantization_config: what is not converted stays bfloat16");
        add("expert_weight_bits", 4.25,
            "quantization_config mxfp4: 4 bits, and a scale of 8 bits per 32 weights");
        return;
      }
      if (quantised.contains("bits") && quantised.at("bits").is_number()) {
        const double bits = quantised.at("bits").get<double>();
        const auto group = quantised.value("group_size", std::int64_t{0});
        const double scales = group > 0 ? 16.0 / static_cast<double>(group) : 0;
        add("weight_bits", bits + scales,
            "quantization_config: bits, and a scale of 16 bits per group_size weights");
        return;
      }
      if (method == "fp8") return add("weight_bits", 8, "quantization_config: fp8");
      notes_.push_back("quantization_config '" + method +
                       "' is not known here: weight_bits is that of the data type");
    }
    for (const char* name : {"dtype", "torch_dtype"}) {
      const ConfigNode& node = given(name) ? text_ : outer_;
      if (!node.has(name) || !node.raw().at(name).is_string()) continue;
      const std::string type = node.at(name).text();
      const std::string from = std::string(name) + " " + type;
      if (type.ends_with("float16")) return add("weight_bits", 16, from);
      if (type.ends_with("float32")) return add("weight_bits", 32, from);
      if (type.find("float8") != std::string::npos) return add("weight_bits", 8, from);
    }
    add("weight_bits", 16, "no torch_dtype: taken to be 16 bits");
  }

  [[nodiscard]] std::vector<std::string> layer_types() const {
    std::vector<std::string> types;
    if (given("layer_types")) {
      const ConfigNode list = text_.at("layer_types");
      for (const ConfigNode& item : list.items()) types.push_back(item.text());
      if (std::ssize(types) != layers_) {
        throw UserError(list.place(), "found " + std::to_string(types.size()) + " values",
                        "one for each of " + std::to_string(layers_) + " layers");
      }
      return types;
    }
    if (given("full_attn_idxs")) {
      types.assign(static_cast<std::size_t>(layers_), "conv");
      for (const json& layer : text_.raw().at("full_attn_idxs")) {
        if (layer.is_number_integer() && layer >= 0 && layer < layers_) {
          types[layer.get<std::size_t>()] = "full_attention";
        }
      }
      return types;
    }
    if (given("full_attention_interval")) {
      const std::int64_t interval = std::max<std::int64_t>(1, whole("full_attention_interval"));
      for (std::int64_t i = 0; i < layers_; ++i) {
        types.emplace_back((i + 1) % interval == 0 ? "full_attention" : "linear_attention");
      }
      return types;
    }
    const bool off = given("use_sliding_window") && text_.raw().at("use_sliding_window") == false;
    if (!given("sliding_window") || off || whole("sliding_window") == 0) return types;
    std::int64_t every = type_.full_every;
    for (const char* name : {"sliding_window_pattern", "_sliding_window_pattern"}) {
      if (given(name) && text_.raw().at(name).is_number_integer()) every = whole(name);
    }
    // Qwen2: the layers from max_window_layers on.
    const bool later = given("use_sliding_window") && given("max_window_layers");
    for (std::int64_t i = 0; i < layers_; ++i) {
      const bool full = later ? i < whole("max_window_layers") : every > 0 && (i + 1) % every == 0;
      types.emplace_back(full ? "full_attention" : "sliding_attention");
    }
    return types;
  }

  void add_windows() {
    const std::vector<std::string> types = layer_types();
    if (types.empty()) return;
    json windows = json::array();
    json attending = json::array();
    std::string other;
    bool slides = false;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const bool sliding = types[i] == "sliding_attention" || types[i] == "chunked_attention";
      slides |= sliding;
      if (sliding || types[i] == "full_attention") {
        attending.push_back(i);
      } else {
        other = types[i];
      }
      windows.push_back(sliding ? whole("sliding_window") : 0);
    }
    if (slides) {
      const bool alike =
          std::adjacent_find(types.begin(), types.end(), std::not_equal_to<>()) == types.end();
      add("sliding_window", alike ? windows.front() : windows,
          given("layer_types") ? "sliding_window, layer_types" : "sliding_window");
    }
    if (other.empty()) return;
    add("attention_layers", std::move(attending),
        given("layer_types")      ? "layer_types"
        : given("full_attn_idxs") ? "full_attn_idxs"
                                  : "full_attention_interval");
    if (other == "conv") return add_convolution();
    if (other == "linear_attention") return add_delta_network();
    throw UserError(text_.place(), "found layers of type '" + other + "'",
                    "full_attention, sliding_attention, conv or linear_attention");
  }

  void add_convolution() {
    const std::int64_t width = given("conv_dim") ? whole("conv_dim") : hidden_;
    const std::int64_t length = given("conv_L_cache") ? whole("conv_L_cache") : 3;
    add("mixer_weights", 3 * hidden_ * width + width * hidden_ + length * width,
        "conv_L_cache " + std::to_string(length) + ", width " + std::to_string(width) +
            ": two projections and the taps, as transformers 5.24.0, Lfm2ShortConv, has them");
    add("state_bytes", 2 * length * width,
        "conv_L_cache columns of " + std::to_string(width) + ", 2 bytes each");
  }

  void add_delta_network() {
    const std::int64_t keys = whole("linear_num_key_heads") * whole("linear_key_head_dim");
    const std::int64_t heads = whole("linear_num_value_heads");
    const std::int64_t values = heads * whole("linear_value_head_dim");
    const std::int64_t taps = whole("linear_conv_kernel_dim");
    const std::int64_t mixed = 2 * keys + values;
    add("mixer_weights",
        hidden_ * mixed + hidden_ * values + 2 * hidden_ * heads + values * hidden_ + taps * mixed,
        "linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, "
        "linear_value_head_dim, linear_conv_kernel_dim, as transformers 5.24.0, "
        "Qwen3_5GatedDeltaNet, has them");
    add("state_bytes",
        heads * whole("linear_key_head_dim") * whole("linear_value_head_dim") * 4 +
            (taps - 1) * mixed * 2,
        "a state of 4 bytes per element and head, and columns of the convolution of 2 bytes");
  }

  ConfigNode outer_;
  ConfigNode text_;
  std::string source_;
  std::string type_name_;
  Type type_;
  std::int64_t layers_ = 0;
  std::int64_t hidden_ = 0;
  ordered_json json_;
  std::vector<std::string> notes_;
};

}  // namespace

ConvertedModel model_of_config(const ConfigNode& config, const std::string& title,
                               const std::string& source) {
  if (!config.is_object()) throw UserError(config.place(), "found no object", "a config.json");
  return Converter(config, source).convert(title, source);
}

}  // namespace kvreplay
