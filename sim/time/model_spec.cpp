#include "sim/time/model_spec.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/argument_json.hpp"
#include "base/error.hpp"

namespace kvreplay {
namespace {

/// sliding_window where a model file does not say it.
constexpr std::int64_t kAsRecorded = -1;
constexpr std::string_view kNoSharing = "no";
constexpr std::string_view kOneVector = "stored";

Parameter parameter_called(std::string_view name) {
  const std::span<const Parameter> all = ModelSpec::parameters();
  return *std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.name == name; });
}

/// The value of a member that is plain or {"value", "source"}.
ConfigNode value_of(const ConfigNode& member) {
  return member.is_object() && member.has("value") ? member.at("value") : member;
}

}  // namespace

/// A model file's numbers by layer: those that it gives as lists, and the same ones for all layers.
class LayerLists {
 public:
  explicit LayerLists(const ConfigNode& file) : scalars_(file) {
    for (const std::string& name : ModelSpec::parameters_by_layer()) {
      if (file.has(name) && value_of(file.at(name)).is_array()) read_list(name, file.at(name));
    }
  }

  /// The file with each list's first value in its place.
  [[nodiscard]] const ConfigNode& scalars() const { return scalars_; }

  /// Once `arguments` are known, from scalars().
  void check_lengths(const Arguments& arguments) {
    arguments_ = &arguments;
    const std::int64_t layers = arguments.integer("layers");
    for (const auto& [name, list] : lists_) {
      if (std::ssize(list.values) == layers) continue;
      throw UserError(list.place, "found " + std::to_string(list.values.size()) + " values",
                      "one for all layers, or a list of " + std::to_string(layers));
    }
  }

  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t layer) const {
    return std::get<std::int64_t>(value(name, layer));
  }
  [[nodiscard]] const std::string& text(std::string_view name, std::int64_t layer) const {
    return std::get<std::string>(value(name, layer));
  }
  [[nodiscard]] SourceLocation place(std::string_view name, std::int64_t layer) const {
    const auto found = lists_.find(name);
    if (found == lists_.end()) return arguments_->place(name);
    return found->second.place.at(std::to_string(layer));
  }
  [[nodiscard]] nlohmann::json json() const {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& [name, list] : lists_) {
      for (const Value& value : list.values) object[name].push_back(to_json(value));
    }
    return object;
  }

 private:
  struct List {
    SourceLocation place;
    std::vector<Value> values;
  };

  void read_list(const std::string& name, const ConfigNode& member) {
    const ConfigNode list = value_of(member);
    List& read = lists_[name];
    read.place = list.place();
    Parameter parameter = parameter_called(name);
    parameter.minimum = std::max(parameter.minimum, 0.0);  // -1 is of the file, not of a layer
    for (const ConfigNode& item : list.items()) {
      parameter.name = std::to_string(read.values.size());
      Arguments one;
      one.set_place(read.place);
      one.set(parameter, item.argument());
      read.values.push_back(one.all().begin()->second.value);
    }
    if (read.values.empty()) {
      throw UserError(read.place, "found an empty list", "one value per layer");
    }
    nlohmann::json first{{"value", to_json(read.values.front())}};
    if (member.is_object() && member.has("source")) first["source"] = member.at("source").text();
    scalars_ = scalars_.with(name, first.dump());
  }

  [[nodiscard]] const Value& value(std::string_view name, std::int64_t layer) const {
    const auto found = lists_.find(name);
    if (found != lists_.end()) return found->second.values[static_cast<std::size_t>(layer)];
    return arguments_->all().find(name)->second.value;
  }

  ConfigNode scalars_;
  const Arguments* arguments_ = nullptr;
  std::map<std::string, List, std::less<>> lists_;
};

namespace {

/// By layer; all of them where the file does not say it.
std::vector<bool> attending_layers(const ConfigNode& file, std::int64_t layers) {
  const auto count = static_cast<std::size_t>(layers);
  if (!file.has("attention_layers")) return std::vector<bool>(count, true);
  const ConfigNode list = value_of(file.at("attention_layers"));
  std::vector<bool> attends(count);
  std::int64_t above = -1;
  for (const ConfigNode& item : list.items()) {
    Arguments one;
    one.set_place(list.place());
    one.set(
        integer_parameter("layer", "", std::nullopt,
                          {static_cast<double>(above + 1), static_cast<double>(layers - 1)}, ""),
        item.argument());
    above = one.integer("layer");
    attends[static_cast<std::size_t>(above)] = true;
  }
  if (above < 0) {
    throw UserError(list.place(), "found an empty list", "the numbers of the layers that attend");
  }
  return attends;
}

void check_layer(const LayerSpec& layer, std::int64_t ffn_size, std::int64_t expert_ffn_size,
                 std::int64_t number, const LayerLists& lists) {
  if (layer.attends && layer.query_heads % layer.kv_heads != 0) {
    throw UserError(lists.place("query_heads", number),
                    "found " + std::to_string(layer.query_heads),
                    "a multiple of kv_heads, " + std::to_string(layer.kv_heads));
  }
  if (ffn_size == 0 && layer.experts == 0) {
    throw UserError(lists.place("ffn_size", number), "found 0, in a layer without experts",
                    "at least 1");
  }
  const bool active = layer.active_experts >= 1 && layer.active_experts <= layer.experts;
  if (layer.experts > 0 && !active) {
    throw UserError(lists.place("active_experts", number),
                    "found " + std::to_string(layer.active_experts),
                    "1 to " + std::to_string(layer.experts) + ", as many as there are experts");
  }
  if (layer.experts > 0 && expert_ffn_size == 0) {
    throw UserError(lists.place("expert_ffn_size", number), "found 0, in a layer with experts",
                    "at least 1");
  }
}

}  // namespace

std::span<const Parameter> ModelSpec::parameters() {
  static const std::array kParameters{
      integer_parameter("layers", "", std::nullopt, {1, 1024}, "decoder layers"),
      integer_parameter("hidden_size", "", std::nullopt, {1, 1 << 20}, "width of the hidden state"),
      integer_parameter("query_heads", "", std::nullopt, {1, 4096}, "query heads per layer"),
      integer_parameter("kv_heads", "", std::nullopt, {1, 4096},
                        "key and value heads per layer; divides query_heads"),
      integer_parameter("head_dim", "", std::nullopt, {1, 4096}, "elements of one head's key"),
      integer_parameter("ffn_size", "", std::nullopt, {0, 1 << 24},
                        "inner width of the gated feed-forward layer; 0 = experts alone"),
      integer_parameter("vocabulary", "", std::nullopt, {1, 1 << 24}, "rows of the LM head"),
      real_parameter("weight_bits", "bits", 16, {1, 32},
                     "bits per weight as stored, including scales"),
      flag_parameter("tied_embeddings", std::nullopt, "the LM head is the embedding table"),
      integer_parameter("context_tokens", "tokens", 0, {0, 1e9},
                        "length of the sequence that the recording stands for; 0 = its own length"),
      integer_parameter("sliding_window", "tokens", kAsRecorded, {kAsRecorded, 1e9},
                        "latest tokens that a query sees; 0 = all, -1 = as the layer was recorded"),
      choice_parameter("key_is_value",
                       {std::string(kNoSharing), "projected", std::string(kOneVector)},
                       std::string(kNoSharing),
                       "projected: one matrix makes key and value; stored: they are one vector, "
                       "stored once"),
      integer_parameter("kv_shared_layers", "layers", 0, {0, 1024},
                        "the last layers, which use the keys and values of the last earlier layer "
                        "of their kind"),
      flag_parameter("gated_attention", false,
                     "a gate as wide as the queries multiplies the output of attention"),
      integer_parameter("mixer_weights", "weights", 0, {0, 1e12},
                        "of a layer that does not attend, in place of attention"),
      integer_parameter("state_bytes", "bytes", 0, {0, 1e12},
                        "of a sequence in a layer that does not attend, read and written per step"),
      integer_parameter("experts", "", 0, {0, 65536}, "feed-forward experts a layer"),
      integer_parameter("active_experts", "", 0, {0, 65536}, "experts that a token passes through"),
      integer_parameter("expert_ffn_size", "", 0, {0, 1 << 24}, "inner width of one gated expert"),
      real_parameter("expert_weight_bits", "bits", 0, {0, 32},
                     "an expert's weight as stored; 0 = weight_bits"),
      integer_parameter("other_weights", "weights", 0, {0, 1e12},
                        "of a layer, beside attention and feed-forward, read per step"),
      integer_parameter("table_weights", "weights", 0, {0, 1e13},
                        "of tables that are held and only looked up, beside the embeddings"),
  };
  return kParameters;
}

std::span<const std::string> ModelSpec::parameters_by_layer() {
  static const std::array<std::string, 10> kNames{
      "query_heads", "kv_heads",       "head_dim",        "ffn_size",     "sliding_window",
      "experts",     "active_experts", "expert_ffn_size", "key_is_value", "other_weights"};
  return kNames;
}

ModelSpec ModelSpec::load(const std::string& file, const ConfigFolder& configs) {
  return parse(configs.load("models", file), std::filesystem::path(file).stem().string());
}

ModelSpec ModelSpec::parse(const ConfigNode& node, std::string name) {
  static const std::vector<std::string> kRequired{"title"};
  static const std::vector<std::string> kOthers{"name", "title", "source", "notes",
                                                "attention_layers"};
  check_complete(node, kRequired, parameters());
  ModelSpec model;
  ConfigHeader header = ConfigHeader::parse(node, std::move(name));
  model.name = std::move(header.name);
  model.title = std::move(header.title);
  model.source = std::move(header.source);
  model.notes = std::move(header.notes);
  LayerLists lists(node);
  model.arguments = parse_arguments(lists.scalars(), parameters(), kOthers);
  lists.check_lengths(model.arguments);
  const Arguments& given = model.arguments;
  model.layers = given.integer("layers");
  model.hidden_size = given.integer("hidden_size");
  model.vocabulary = given.integer("vocabulary");
  model.weight_bits = given.real("weight_bits");
  model.expert_weight_bits = given.real("expert_weight_bits");
  if (model.expert_weight_bits == 0) model.expert_weight_bits = model.weight_bits;
  model.tied_embeddings = given.flag("tied_embeddings");
  model.table_weights = given.integer("table_weights");
  model.state_bytes = given.integer("state_bytes");
  model.context_tokens = given.integer("context_tokens");
  const std::vector<bool> attends = attending_layers(node, model.layers);
  model.add_layers(lists, attends);
  nlohmann::json by_layer = lists.json();
  if (node.has("attention_layers")) {
    by_layer["attention_layers"] = value_of(node.at("attention_layers")).raw();
  }
  model.by_layer = by_layer.dump();
  return model;
}

void ModelSpec::add_layers(const LayerLists& lists, const std::vector<bool>& attends) {
  const std::int64_t shared = arguments.integer("kv_shared_layers");
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::int64_t ffn_size = lists.integer("ffn_size", i);
    const std::int64_t expert_ffn_size = lists.integer("expert_ffn_size", i);
    LayerSpec layer{.attends = attends[static_cast<std::size_t>(i)],
                    .source = i,
                    .query_heads = lists.integer("query_heads", i),
                    .kv_heads = lists.integer("kv_heads", i),
                    .head_dim = lists.integer("head_dim", i),
                    .ffn_weights = 3 * hidden_size * ffn_size,
                    .other_weights = lists.integer("other_weights", i),
                    .experts = lists.integer("experts", i),
                    .active_experts = lists.integer("active_experts", i),
                    .expert_weights = 3 * hidden_size * expert_ffn_size};
    check_layer(layer, ffn_size, expert_ffn_size, i, lists);
    layer.other_weights += hidden_size * layer.experts;  // the router
    if (layer.attends) {
      add_attention(layer, lists, i, i >= layers - shared);
    } else {
      layer.query_weights = arguments.integer("mixer_weights");
    }
    layer_list_.push_back(layer);
  }
  const auto first = std::find_if(layer_list_.begin(), layer_list_.end(),
                                  [](const LayerSpec& layer) { return layer.attends; });
  query_heads = first->query_heads;
  kv_heads = first->kv_heads;
  head_dim = first->head_dim;
}

void ModelSpec::add_attention(LayerSpec& layer, const LayerLists& lists, std::int64_t number,
                              bool shares) {
  const std::string& key_is_value = lists.text("key_is_value", number);
  const std::int64_t window = lists.integer("sliding_window", number);
  KvShape shape{layers, layer.query_heads, layer.kv_heads, layer.head_dim,
                key_is_value == kOneVector};
  if (window != kAsRecorded) shape.sliding_window = window;

  const std::int64_t head = hidden_size * layer.head_dim;
  layer.query_weights = head * layer.query_heads * (arguments.flag("gated_attention") ? 2 : 1);
  layer.output_weights = head * layer.query_heads;
  const auto found = std::find(kinds_.begin(), kinds_.end(), shape);
  layer.kind = found - kinds_.begin();
  if (!shares) {
    if (found == kinds_.end()) kinds_.push_back(shape);
    layer.key_value_weights = head * layer.kv_heads * (key_is_value == kNoSharing ? 2 : 1);
    return;
  }
  for (std::int64_t i = number - 1; i >= 0 && layer.source == number; --i) {
    const LayerSpec& earlier = this->layer(i);
    if (earlier.attends && earlier.source == i && earlier.kind == layer.kind) layer.source = i;
  }
  if (layer.source == number) {
    throw UserError(arguments.place("kv_shared_layers"),
                    "layer " + std::to_string(number) +
                        " has no earlier layer of its kind to "
                        "share the keys and values of",
                    "fewer than " + std::to_string(layers - number) + " layers");
  }
}

std::int64_t ModelSpec::attention_layers() const {
  return std::count_if(layer_list_.begin(), layer_list_.end(),
                       [](const LayerSpec& layer) { return layer.attends; });
}

double ModelSpec::experts_read(const LayerSpec& layer, std::int64_t batch) {
  if (layer.experts == 0) return 0;
  const auto all = static_cast<double>(layer.experts);
  const double missed = 1 - static_cast<double>(layer.active_experts) / all;
  return all * (1 - std::pow(missed, static_cast<double>(batch)));
}

std::int64_t ModelSpec::weight_bytes() const {
  const std::int64_t tables = tied_embeddings ? 1 : 2;
  std::int64_t weights = tables * head_weights() + table_weights;
  double of_experts = 0;
  for (const LayerSpec& layer : layer_list_) {
    weights += layer.query_weights + layer.key_value_weights + layer.output_weights +
               layer.ffn_weights + layer.other_weights;
    of_experts += static_cast<double>(layer.experts * layer.expert_weights);
  }
  return static_cast<std::int64_t>(
      std::ceil(bytes_of(weights) + of_experts * expert_weight_bits / 8.0));
}

}  // namespace kvreplay
