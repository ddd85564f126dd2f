#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/half.hpp"
#include "base/hdf5/hdf5_file.hpp"

namespace kvreplay {

using RawAttribute =
    std::variant<std::string, std::int64_t, double, std::vector<std::int64_t>, std::vector<double>>;

struct RawDataset {
  std::variant<std::vector<Half>, std::vector<std::uint16_t>, std::vector<float>,
               std::vector<std::int32_t>>
      values;
  std::vector<std::int64_t> shape;
  std::optional<RawAttribute> query_start;
  Hdf5Layout layout;
};

/// A valid synthetic trace as plain attributes and data sets, for a test to spoil and write: 6
/// query heads on 2 KV heads, head_dim 8, layers 1 and 3 of 4, 16 + 8 tokens, queries from position
/// 12.
struct RawTrace {
  static constexpr std::int64_t kTokens = 24;
  static constexpr std::int64_t kQueryStart = 12;
  static constexpr const char* kLayers[] = {"01", "03"};

  std::map<std::string, RawAttribute> attributes;
  std::map<std::string, RawDataset> datasets;

  RawTrace() {
    const auto integer = [](std::int64_t value) { return RawAttribute(value); };
    const auto text = [](const char* value) { return RawAttribute(std::string(value)); };
    attributes = {{"format", text("kvtrace")},
                  {"format_version", integer(1)},
                  {"complete", integer(1)},
                  {"model", text("synthetic")},
                  {"model_revision", text("")},
                  {"weights_sha256", text("")},
                  {"layers", integer(4)},
                  {"query_heads", integer(6)},
                  {"kv_heads", integer(2)},
                  {"head_dim", integer(8)},
                  {"hidden_size", integer(48)},
                  {"recorded_layers", std::vector<std::int64_t>{1, 3}},
                  {"prompt_tokens", integer(16)},
                  {"tokens", integer(kTokens)},
                  {"dtype", text("f16")},
                  {"key_state", text("post_rope")},
                  {"rope_theta", 10000.0},
                  {"rope_pairs", text("half")},
                  {"rope_scaling", text("none")},
                  {"softmax_scale", 0.35},
                  {"sliding_window", std::vector<std::int64_t>{0, 0}},
                  {"tokenizer", text("synthetic")},
                  {"text_source", text("synthetic")},
                  {"text_sha256", text("")},
                  {"tool", text("raw_trace")},
                  {"tool_version", text("1")},
                  {"seed", integer(0)},
                  {"created_utc", text("2000-01-01T00:00:00Z")}};
    for (const char* layer : kLayers) {
      const std::string group = std::string("/layer/") + layer;
      datasets[group + "/key"] = halves({2, kTokens, 8});
      datasets[group + "/value"] = halves({2, kTokens, 8});
      datasets[group + "/query"] = halves({6, kTokens - kQueryStart, 8});
      datasets[group + "/query"].query_start = kQueryStart;
      datasets[group + "/query_ahead"] = datasets[group + "/query"];
    }
    datasets["/tokens/id"] = {std::vector<std::int32_t>(kTokens, 7), {kTokens}, {}, {}};
    for (const char* name : {"entropy", "top_probability", "log_probability"}) {
      datasets[std::string("/tokens/") + name] = {
          std::vector<float>(kTokens, std::string(name) == "log_probability" ? -0.5F : 0.5F),
          {kTokens},
          {},
          {}};
    }
  }

  /// Distinct small values: -3 to 4.
  static RawDataset halves(std::vector<std::int64_t> shape) {
    std::vector<Half> values;
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(to_half(static_cast<float>((i * 37) % 113) / 16.0F - 3.0F));
    }
    return {std::move(values), std::move(shape), {}, {}};
  }

  void add_attention_inputs() {
    for (const char* layer : kLayers) {
      datasets[std::string("/layer/") + layer + "/attention_input"] =
          halves({kTokens - kQueryStart, 48});
    }
  }

  void add_output_weights() {
    constexpr std::int64_t kQueries = kTokens - kQueryStart;
    for (const char* layer : kLayers) {
      const std::string group = std::string("/layer/") + layer;
      datasets[group + "/output_sketch"] = {std::vector<float>(2 * 48, 0.25F), {2, 48}, {}, {}};
      std::vector<float> norms;
      for (std::int64_t i = 0; i < kQueries; ++i) norms.push_back(static_cast<float>(i + 1));
      datasets[group + "/residual_norm"] = {std::move(norms), {kQueries}, {}, {}};
    }
  }

  static void write_attribute(Hdf5File& hdf5, const std::string& path, const std::string& name,
                              const RawAttribute& attribute) {
    if (const auto* text = std::get_if<std::string>(&attribute)) {
      hdf5.write_text_attribute(path, name, *text);
    } else if (const auto* integer = std::get_if<std::int64_t>(&attribute)) {
      hdf5.write_integer_attribute(path, name, *integer);
    } else if (const auto* real = std::get_if<double>(&attribute)) {
      hdf5.write_real_attribute(path, name, *real);
    } else if (const auto* reals = std::get_if<std::vector<double>>(&attribute)) {
      hdf5.write_reals_attribute(path, name, *reals);
    } else {
      hdf5.write_integers_attribute(path, name, std::get<std::vector<std::int64_t>>(attribute));
    }
  }

  void write(const std::string& file) const {
    // A reader may still have the former file open.
    std::filesystem::remove(file);
    Hdf5File hdf5 = Hdf5File::create(file, file);
    for (const auto& [name, attribute] : attributes) write_attribute(hdf5, "/", name, attribute);
    for (const auto& [path, dataset] : datasets) {
      std::visit(
          [&, &name = path, &data = dataset](const auto& values) {
            using T = typename std::decay_t<decltype(values)>::value_type;
            hdf5.create_dataset(name, hdf5_type<T>(), data.shape, data.layout);
            const std::vector<std::int64_t> start(data.shape.size(), 0);
            hdf5.write_box<T>(name, start, data.shape, values);
          },
          dataset.values);
      if (dataset.query_start) write_attribute(hdf5, path, "query_start", *dataset.query_start);
    }
    hdf5.close();
  }
};

}  // namespace kvreplay
