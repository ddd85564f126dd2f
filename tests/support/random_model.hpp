#pragma once

#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "base/random.hpp"

namespace kvreplay {

/// The shape of a random model; the defaults have grouped queries and make a file of 1 MB.
struct RandomModelShape {
  std::int64_t layers = 3;
  std::int64_t hidden_size = 144;
  std::int64_t ffn_size = 96;
  std::int64_t query_heads = 9;
  std::int64_t kv_heads = 3;
  std::int64_t head_dim = 16;
  std::int64_t vocabulary = 101;
  std::string rope_pairs = "half";
  std::uint64_t seed = 1;
  /// Gemma 3's parts: sliding windows (three layers), two bases of RoPE, norms behind attention and
  /// feed-forward layer, GeGLU, a scaled embedding.
  bool gemma = false;
  int integer_bits = 0;  ///< 8 or 4: matrices of integers
};

/// Writes a model file of F32 weights, or of integers (docs/recording.md).
inline void write_random_model(const std::string& file, const RandomModelShape& shape = {}) {
  nlohmann::json header;
  std::string data;
  Random random(shape.seed);
  const auto place = [&](const std::string& name, const char* dtype,
                         const std::vector<std::int64_t>& extents, const void* from,
                         std::int64_t bytes) {
    data.resize((data.size() + 63) / 64 * 64);
    const auto begin = std::ssize(data);
    data.append(static_cast<const char*>(from), static_cast<std::size_t>(bytes));
    header[name] = {{"dtype", dtype}, {"shape", extents}, {"data_offsets", {begin, begin + bytes}}};
  };
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& extents,
                       const std::function<double(double)>& from_uniform) {
    const std::int64_t count =
        std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(from_uniform(2 * random.uniform() - 1)));
    }
    place(name, "F32", extents, values.data(), count * 4);
  };
  const auto integers = [&](const std::string& name, std::int64_t panels, std::int64_t groups,
                            double largest) {
    const std::int64_t bits = shape.integer_bits;
    std::string bytes;
    while (std::ssize(bytes) < panels * groups * 64 * bits) {
      bytes += static_cast<char>(random.below(256));
    }
    std::vector<Half> scales;
    for (std::int64_t i = 0; i < panels * groups * 16; ++i) {
      const double of = largest / (bits == 8 ? 127 : 8) * (1 + 0.3 * random.uniform());
      scales.push_back(to_half(static_cast<float>(of)));
    }
    place(name, bits == 8 ? "I8" : "U8", {panels, groups, bits, 16, 4}, bytes.data(),
          std::ssize(bytes));
    place(name + ".scales", "F16", {panels, groups, 16}, scales.data(), std::ssize(scales) * 2);
  };
  const auto matrix = [&](const std::string& name, std::int64_t outputs, std::int64_t inputs,
                          double scale = 2.5) {
    const std::int64_t panels = (outputs + 15) / 16;
    if (shape.integer_bits > 0) {
      const double largest = scale / std::sqrt(static_cast<double>(inputs));
      return integers(name, panels, (inputs + 31) / 32, largest);
    }
    add(name, {panels, inputs, 16},
        [=](double u) { return scale * u / std::sqrt(static_cast<double>(inputs)); });
  };
  const auto norm = [&](const std::string& name, std::int64_t size) {
    add(name, {size}, [](double u) { return 1 + 0.3 * u; });
  };
  const std::int64_t hidden = shape.hidden_size;
  const std::int64_t queries = shape.query_heads * shape.head_dim;
  const std::int64_t keys = shape.kv_heads * shape.head_dim;
  matrix("embedding", shape.vocabulary, hidden, 7);
  norm("output_norm", hidden);
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const std::string prefix = "layer.0" + std::to_string(i) + ".";
    norm(prefix + "attention_norm", hidden);
    norm(prefix + "ffn_norm", hidden);
    if (shape.gemma) {
      norm(prefix + "post_attention_norm", hidden);
      norm(prefix + "post_ffn_norm", hidden);
    }
    matrix(prefix + "query", queries, hidden, 5);
    matrix(prefix + "key", keys, hidden, 5);
    matrix(prefix + "value", keys, hidden);
    matrix(prefix + "attention_output", hidden, queries);
    matrix(prefix + "gate", shape.ffn_size, hidden);
    matrix(prefix + "up", shape.ffn_size, hidden);
    matrix(prefix + "down", hidden, shape.ffn_size);
  }
  nlohmann::json architecture = {
      {"layers", shape.layers},         {"hidden_size", hidden},
      {"ffn_size", shape.ffn_size},     {"query_heads", shape.query_heads},
      {"kv_heads", shape.kv_heads},     {"head_dim", shape.head_dim},
      {"vocabulary", shape.vocabulary}, {"context_tokens", 1024},
      {"norm_epsilon", 1e-5},           {"rope_theta", 10000.0},
      {"rope_pairs", shape.rope_pairs}, {"rope_scaling", "none"}};
  if (shape.gemma) {
    architecture["sliding_window"] = {20, 0, 33};
    architecture["rope_theta"] = {10000.0, 500000.0, 10000.0};
    architecture["activation"] = "gelu_tanh";
    architecture["embedding_scale"] = 3.0;
    architecture["softmax_scale"] = 0.2;
  }
  header["__metadata__"] = {{"format", "kvmodel"},      {"format_version", "1"},
                            {"name", "random"},         {"architecture", architecture.dump()},
                            {"tokenizer_name", "none"}, {"source", "random"},
                            {"source_sha256", ""}};
  std::string text = header.dump();
  while ((text.size() + 8) % 64 != 0) text += ' ';
  const std::uint64_t length = text.size();
  std::ofstream stream(file, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(&length), 8);
  stream << text;
  stream << data;
}

}  // namespace kvreplay
