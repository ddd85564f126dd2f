#include "sim/models/model_file.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/config.hpp"
#include "base/error.hpp"
#include "base/mapped_file.hpp"

namespace kvreplay {
namespace {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;
constexpr std::int64_t kPanel = 16;
constexpr const char* kFormatVersion = "1";

std::string to_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t extent : shape) {
    text += (text.empty() ? "[" : ", ") + std::to_string(extent);
  }
  return text + "]";
}

constexpr Range kTheta{1, 1e12};
constexpr Range kWindow{0, 1e9};

/// One number per layer, from a list or from one number for all layers.
template <typename T>
std::vector<T> by_layer(const ConfigNode& number_or_list, std::int64_t layers, Range range) {
  const std::string allowed = "a number from " + kvreplay::to_text(Value(range.minimum)) + " to " +
                              kvreplay::to_text(Value(range.maximum)) + ", or a list of " +
                              std::to_string(layers) + ", one per layer";
  std::vector<T> values;
  for (const ConfigNode& item : number_or_list.items()) {
    const bool sound =
        std::is_integral_v<T> ? item.raw().is_number_integer() : item.raw().is_number();
    const double value = sound ? item.raw().get<double>() : 0;
    if (!sound || value < range.minimum || value > range.maximum) {
      throw UserError(item.place(), item.raw().dump(), allowed);
    }
    values.push_back(item.raw().get<T>());
  }
  if (!number_or_list.is_array()) values.resize(static_cast<std::size_t>(layers), values.front());
  if (std::ssize(values) != layers) {
    throw UserError(number_or_list.place(), std::to_string(values.size()) + " values", allowed);
  }
  return values;
}

Architecture parse_architecture(const std::string& text, const std::string& file) {
  static const std::vector<std::string> kByLayer{"rope_theta", "sliding_window"};
  const ConfigNode node = ConfigNode::parse(text, file);
  const Arguments values = parse_arguments(node, Architecture::parameters(), kByLayer);
  Architecture architecture{.layers = values.integer("layers"),
                            .hidden_size = values.integer("hidden_size"),
                            .ffn_size = values.integer("ffn_size"),
                            .query_heads = values.integer("query_heads"),
                            .kv_heads = values.integer("kv_heads"),
                            .head_dim = values.integer("head_dim"),
                            .vocabulary = values.integer("vocabulary"),
                            .context_tokens = values.integer("context_tokens"),
                            .norm_epsilon = values.real("norm_epsilon"),
                            .rope_theta = {},
                            .sliding_window = {},
                            .rope_interleaved = values.text("rope_pairs") == "interleaved",
                            .rope_scaling = values.text("rope_scaling"),
                            .gelu = values.text("activation") == "gelu_tanh",
                            .embedding_scale = values.real("embedding_scale"),
                            .softmax_scale = values.real("softmax_scale")};
  architecture.rope_theta = by_layer<double>(node.at("rope_theta"), architecture.layers, kTheta);
  architecture.sliding_window.resize(static_cast<std::size_t>(architecture.layers));
  if (node.has("sliding_window")) {
    architecture.sliding_window =
        by_layer<std::int64_t>(node.at("sliding_window"), architecture.layers, kWindow);
  }
  if (architecture.softmax_scale == 0) {
    architecture.softmax_scale = 1 / std::sqrt(static_cast<double>(architecture.head_dim));
  }
  for (const char* name : {"hidden_size", "ffn_size", "head_dim"}) {
    if (values.integer(name) % kPanel != 0) {
      throw UserError(values.place(name), std::to_string(values.integer(name)),
                      "a multiple of " + std::to_string(kPanel));
    }
  }
  if (architecture.query_heads % architecture.kv_heads != 0) {
    throw UserError(values.place("query_heads"), std::to_string(architecture.query_heads),
                    "a multiple of kv_heads, " + std::to_string(architecture.kv_heads));
  }
  return architecture;
}

}  // namespace

void Matrix::load_row(std::int64_t output, std::span<float> row) const {
  if (integer_bits() > 0) return load_integers(output, row);
  const std::int64_t first = output / kPanel * kPanel * inputs + output % kPanel;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::int64_t at = first + kPanel * static_cast<std::int64_t>(i);
    row[i] = floats != nullptr ? floats[at] : bfloat16_to_float(bfloats[at].bits);
  }
}

void Matrix::load_integers(std::int64_t output, std::span<float> row) const {
  const std::int64_t bits = integer_bits();
  const std::int64_t lane = output % kPanel;
  for (std::int64_t i = 0; i < std::ssize(row); ++i) {
    const std::int64_t group = output / kPanel * groups() + i / kernels::kGroup;
    const std::int64_t within = i % kernels::kGroup;
    const std::int64_t k = bits == 8 ? within : within % (kernels::kGroup / 2);
    const std::uint8_t byte = integers.weights[group * 64 * bits + k / 4 * 64 + 4 * lane + k % 4];
    const int half = (within == k ? byte : byte >> 4) & 15;
    row[static_cast<std::size_t>(i)] =
        static_cast<float>(bits == 8 ? static_cast<std::int8_t>(byte) : half - 8) *
        to_float(integers.scales[group * kPanel + lane]);
  }
}

std::span<const Parameter> Architecture::parameters() {
  static const auto kParameters = [] {
    constexpr Range kCount{1, 1e6};
    constexpr Range kSize{16, 1e7};
    const auto count = [](const char* name, Range range, const char* help) {
      return integer_parameter(name, "", std::nullopt, range, help);
    };
    return std::array{
        count("layers", kCount, "decoder layers"),
        count("hidden_size", kSize, "length of the residual stream"),
        count("ffn_size", kSize, "length of the gated layer"),
        count("query_heads", kCount, "query heads per layer"),
        count("kv_heads", kCount, "key-value heads per layer"),
        count("head_dim", kSize, "length of a key, value or query"),
        count("vocabulary", kSize, "token ids"),
        count("context_tokens", {1, 1e9}, "positions that the model was trained for"),
        real_parameter("norm_epsilon", "", std::nullopt, {1e-12, 1}, "added to the mean square"),
        choice_parameter("rope_pairs", {"half", "interleaved"}, std::nullopt,
                         "which dimensions rotate together"),
        text_parameter("rope_scaling", "none",
                       "how the factors of RoPE's frequencies were computed"),
        choice_parameter("activation", {"silu", "gelu_tanh"}, "silu",
                         "activation of the feed-forward layer's gate"),
        real_parameter("embedding_scale", "", 1, {1e-6, 1e6}, "factor on a token's embedding"),
        real_parameter("softmax_scale", "", 0, {0, 1e6},
                       "factor on attention scores; 0 = 1 / sqrt(head_dim)")};
  }();
  return kParameters;
}

/// Finds tensors by name.
class Model::Reader {
 public:
  Reader(MappedFile& mapping, const std::string& file)
      : mapping_(mapping), file_(file), header_(parse(mapping, file)) {}

  [[nodiscard]] std::string metadata(const char* name) const {
    return header_.at("__metadata__").at(name).text();
  }
  [[nodiscard]] bool has(const std::string& name) const { return header_.has(name); }

  [[nodiscard]] Matrix matrix(const std::string& name, std::int64_t outputs,
                              std::int64_t inputs) const {
    Matrix matrix{.outputs = outputs, .inputs = inputs};
    const std::string type = header_.at(name).at("dtype").text();
    if (type == "I8" || type == "U8") {
      matrix.type = type == "I8" ? Matrix::Type::kInteger8 : Matrix::Type::kInteger4;
      const std::array<std::int64_t, 5> shape{matrix.panels(), matrix.groups(),
                                              matrix.integer_bits(), kPanel, 4};
      matrix.integers.weights = reinterpret_cast<const std::uint8_t*>(find(name, shape).data);
      const std::string scales = name + ".scales";
      const Found found = find(scales, std::array{matrix.panels(), matrix.groups(), kPanel});
      if (found.type != "F16") throw UserError({file_, scales}, "dtype is " + found.type, "F16");
      matrix.integers.scales = reinterpret_cast<const Half*>(found.data);
      return matrix;
    }
    if (type != "F32" && type != "BF16") {
      throw UserError({file_, name}, "dtype is " + type, "F32, BF16, I8 or U8");
    }
    const std::byte* data = find(name, std::array{matrix.panels(), inputs, kPanel}).data;
    if (type == "F32") {
      matrix.floats = reinterpret_cast<const float*>(data);
    } else {
      matrix.type = Matrix::Type::kBFloat;
      matrix.bfloats = reinterpret_cast<const kernels::BFloat*>(data);
    }
    return matrix;
  }

  [[nodiscard]] std::span<const float> vector(const std::string& name, std::int64_t size) const {
    const Found found = find(name, std::array{size});
    if (found.type != "F32") throw UserError({file_, name}, "dtype is " + found.type, "F32");
    return {reinterpret_cast<const float*>(found.data), static_cast<std::size_t>(size)};
  }
  [[nodiscard]] std::span<const float> optional_vector(const std::string& name,
                                                       std::int64_t size) const {
    return has(name) ? vector(name, size) : std::span<const float>{};
  }

 private:
  struct Found {
    std::string type;
    const std::byte* data;
  };

  static ConfigNode parse(const MappedFile& mapping, const std::string& file) {
    std::uint64_t length = 0;
    if (mapping.size() >= kLengthBytes) std::memcpy(&length, mapping.at(0), kLengthBytes);
    const std::int64_t room = std::min(mapping.size() - kLengthBytes, kMaxHeaderBytes);
    if (room < 2 || length < 2 || length > static_cast<std::uint64_t>(room)) {
      throw UserError({file, ""}, "no header of a sound length", "a model file of import_model");
    }
    const auto* text = reinterpret_cast<const char*>(mapping.at(kLengthBytes));
    ConfigNode header = ConfigNode::parse({text, static_cast<std::size_t>(length)}, file);
    const ConfigNode metadata = header.at("__metadata__");
    if (!metadata.has("format") || metadata.at("format").text() != "kvmodel") {
      throw UserError(metadata.place(), "not a model file of kvreplay",
                      "a file that tools/scripts/import_model.py wrote");
    }
    if (const std::string version = metadata.at("format_version").text();
        version != kFormatVersion) {
      throw UserError(metadata.place().at("format_version"), version, kFormatVersion);
    }
    return header;
  }

  [[nodiscard]] Found find(const std::string& name,
                           std::span<const std::int64_t> expected_shape) const {
    const ConfigNode entry = header_.at(name);
    const std::vector<std::int64_t> shape = integers(entry.at("shape"));
    if (!std::equal(shape.begin(), shape.end(), expected_shape.begin(), expected_shape.end())) {
      throw UserError({file_, name}, "shape is " + to_text(shape), to_text(expected_shape));
    }
    const std::string type = entry.at("dtype").text();
    const bool bytes_each = type == "I8" || type == "U8";
    const std::int64_t item_bytes = bytes_each ? 1 : type == "BF16" || type == "F16" ? 2 : 4;
    const std::int64_t bytes =
        std::accumulate(shape.begin(), shape.end(), item_bytes, std::multiplies<>());
    const std::vector<std::int64_t> offsets = integers(entry.at("data_offsets"));
    std::uint64_t length = 0;
    std::memcpy(&length, mapping_.at(0), kLengthBytes);
    const std::int64_t data_begin = kLengthBytes + static_cast<std::int64_t>(length);
    const std::int64_t room = mapping_.size() - data_begin;
    if (offsets.size() != 2 || offsets[0] < 0 || offsets[0] > room || bytes > room - offsets[0] ||
        offsets[1] - offsets[0] != bytes) {
      throw UserError({file_, name},
                      "data_offsets " + to_text(offsets) + " of " + std::to_string(room) + " bytes",
                      std::to_string(bytes) + " bytes within the file, which may be cut short");
    }
    const std::int64_t begin = data_begin + offsets[0];
    if (begin % item_bytes != 0) {
      throw UserError({file_, name}, "begins at byte " + std::to_string(begin),
                      "a multiple of " + std::to_string(item_bytes));
    }
    mapping_.name_part(begin, bytes, name);
    return {type, mapping_.at(begin)};
  }

  static std::vector<std::int64_t> integers(const ConfigNode& array) {
    std::vector<std::int64_t> values;
    for (const ConfigNode& item : array.items()) {
      if (!item.raw().is_number_integer()) {
        throw UserError(item.place(), item.raw().dump(), "an integer");
      }
      values.push_back(item.raw().get<std::int64_t>());
    }
    return values;
  }

  MappedFile& mapping_;  ///< learns what its parts are called
  const std::string& file_;
  ConfigNode header_;
};

Model::Model(const std::string& file)
    : file_(file), mapping_(std::make_unique<MappedFile>(file, "a model file")) {
  const Reader reader(*mapping_, file_);
  name_ = reader.metadata("name");
  source_sha256_ = reader.metadata("source_sha256");
  tokenizer_name_ = reader.metadata("tokenizer_name");
  has_tokenizer_ = reader.has("tokenizer");
  architecture_ = parse_architecture(reader.metadata("architecture"), file_);

  const Architecture& a = architecture_;
  embedding_ = reader.matrix("embedding", a.vocabulary, a.hidden_size);
  output_ =
      reader.has("output") ? reader.matrix("output", a.vocabulary, a.hidden_size) : embedding_;
  output_norm_ = reader.vector("output_norm", a.hidden_size);
  rope_factors_ = reader.optional_vector("rope_factors", a.head_dim / 2);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const std::string prefix = "layer." + std::string(i < 10 ? "0" : "") + std::to_string(i) + ".";
    const auto matrix = [&](const char* name, std::int64_t outputs, std::int64_t inputs) {
      return reader.matrix(prefix + name, outputs, inputs);
    };
    const auto optional = [&](const char* name, std::int64_t size) {
      return reader.optional_vector(prefix + name, size);
    };
    layers_.push_back(
        {.attention_norm = reader.vector(prefix + "attention_norm", a.hidden_size),
         .ffn_norm = reader.vector(prefix + "ffn_norm", a.hidden_size),
         .query = matrix("query", a.query_size(), a.hidden_size),
         .key = matrix("key", a.kv_size(), a.hidden_size),
         .value = matrix("value", a.kv_size(), a.hidden_size),
         .attention_output = matrix("attention_output", a.hidden_size, a.query_size()),
         .gate = matrix("gate", a.ffn_size, a.hidden_size),
         .up = matrix("up", a.ffn_size, a.hidden_size),
         .down = matrix("down", a.hidden_size, a.ffn_size),
         .query_bias = optional("query_bias", a.query_size()),
         .key_bias = optional("key_bias", a.kv_size()),
         .value_bias = optional("value_bias", a.kv_size()),
         .query_norm = optional("query_norm", a.head_dim),
         .key_norm = optional("key_norm", a.head_dim),
         .post_attention_norm = optional("post_attention_norm", a.hidden_size),
         .post_ffn_norm = optional("post_ffn_norm", a.hidden_size)});
  }
}

Model::~Model() = default;
Model::Model(Model&&) noexcept = default;

void Model::check_unchanged() const {
  mapping_->check_unchanged();
}

std::int64_t Model::weight_bytes() const {
  std::int64_t bytes = output_.bytes();
  for (const ModelLayer& layer : layers_) {
    for (const Matrix* matrix : {&layer.query, &layer.key, &layer.value, &layer.attention_output,
                                 &layer.gate, &layer.up, &layer.down}) {
      bytes += matrix->bytes();
    }
  }
  return bytes;
}

}  // namespace kvreplay
