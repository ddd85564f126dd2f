#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "base/random.hpp"
#include "traces/trace_writer.hpp"

namespace kvreplay {

/// The shape of a synthetic trace. The defaults have grouped queries and make about 350 KB.
struct SyntheticShape {
  std::int64_t layers = 2;
  std::int64_t query_heads = 6;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 32;
  std::int64_t prompt = 384;
  std::int64_t decode = 32;
  std::uint64_t seed = 1;
  std::int64_t query_window = 16;  ///< prompt positions before the first decode step with a query
  std::int64_t clusters = 12;      ///< topics of keys for each KV head
  bool queries_ahead = true;
};

[[nodiscard]] inline TraceInfo synthetic_info(const SyntheticShape& shape) {
  TraceInfo info;
  info.model = "synthetic";
  info.model_revision = "synthetic";
  info.layers = shape.layers;
  info.query_heads = shape.query_heads;
  info.kv_heads = shape.kv_heads;
  info.head_dim = shape.head_dim;
  info.hidden_size = shape.query_heads * shape.head_dim;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    info.recorded_layers.push_back(layer);
    info.sliding_window.push_back(0);
  }
  info.prompt_tokens = shape.prompt;
  info.tokens = shape.prompt + shape.decode;
  info.dtype = "f16";
  info.key_state = "post_rope";
  info.rope_theta = 10000;
  info.rope_pairs = "half";
  info.rope_scaling = "none";
  info.softmax_scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  info.tokenizer = "synthetic";
  info.text_source = "synthetic: clustered keys, queries aimed at clusters";
  info.text_mode = "teacher_forced";
  info.tool = "synthetic_trace";
  info.tool_version = "1";
  info.seed = static_cast<std::int64_t>(shape.seed);
  info.created_utc = "2000-01-01T00:00:00Z";
  return info;
}

/// Writes a trace in which attention has structure: each key lies near the centre of its topic (a
/// run of 4 to 11 consecutive tokens shares one), and each query aims at one or two topics of its
/// KV head, so that a few clusters hold most of the attention. Values differ from token to token.
inline void write_synthetic_trace(const std::string& file, const SyntheticShape& shape = {}) {
  const TraceInfo info = synthetic_info(shape);
  const std::int64_t query_start = std::max<std::int64_t>(0, shape.prompt - shape.query_window);
  TraceWriter writer(file, info, {query_start, shape.queries_ahead});

  const auto dim = static_cast<std::size_t>(shape.head_dim);
  using Row = std::vector<float>;
  // Sum of four uniforms: near enough to normal, unit variance, the same on every machine.
  const auto noise = [](Random& random) {
    const double sum = random.uniform() + random.uniform() + random.uniform() + random.uniform();
    return static_cast<float>((sum - 2) * 1.7320508075688772);
  };
  const auto noise_row = [&](Random& random, float scale) {
    Row row(dim);
    for (float& x : row) x = scale * noise(random);
    return row;
  };
  const auto append = [&](std::int64_t layer, LayerTensor tensor, std::int64_t head,
                          const std::vector<Row>& rows) {
    std::vector<Half> halves;
    for (const Row& row : rows) {
      for (const float x : row) halves.push_back(to_half(x));
    }
    writer.append(layer, tensor, head, halves);
  };

  const std::int64_t group = shape.query_heads / shape.kv_heads;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      Random random(
          Random::derive(shape.seed, static_cast<std::uint64_t>(layer * shape.kv_heads + kv_head)));
      std::vector<Row> centres;
      for (std::int64_t c = 0; c < shape.clusters; ++c) centres.push_back(noise_row(random, 1));
      const auto pick = [&]() -> const Row& { return centres[random.below(centres.size())]; };

      std::vector<Row> keys;
      std::vector<Row> values;
      const Row* topic = nullptr;
      for (std::int64_t t = 0, run = 0; t < info.tokens; ++t, --run) {
        if (run == 0) {
          topic = &pick();
          run = 4 + static_cast<std::int64_t>(random.below(8));
        }
        keys.push_back(noise_row(random, 0.35F));
        for (std::size_t i = 0; i < dim; ++i) keys.back()[i] += (*topic)[i];
        values.push_back(noise_row(random, 1));
      }
      append(layer, LayerTensor::kKey, kv_head, keys);
      append(layer, LayerTensor::kValue, kv_head, values);

      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        std::vector<Row> queries;
        std::vector<Row> ahead;
        for (std::int64_t t = query_start; t < info.tokens; ++t) {
          const Row& first = pick();
          const Row& second = pick();
          queries.push_back(noise_row(random, 0.3F));
          for (std::size_t i = 0; i < dim; ++i) {
            queries.back()[i] += 1.2F * first[i] + 0.5F * second[i];
          }
          ahead.push_back(noise_row(random, 0.2F));
          for (std::size_t i = 0; i < dim; ++i) ahead.back()[i] += queries.back()[i];
        }
        append(layer, LayerTensor::kQuery, head, queries);
        if (shape.queries_ahead) append(layer, LayerTensor::kQueryAhead, head, ahead);
      }
    }
  }

  Random random(Random::derive(shape.seed, ~std::uint64_t{0}));
  std::vector<std::int32_t> ids;
  std::vector<float> entropy;
  std::vector<float> top;
  std::vector<float> logs;
  for (std::int64_t t = 0; t < info.tokens; ++t) {
    ids.push_back(static_cast<std::int32_t>(random.below(1000)));
    entropy.push_back(static_cast<float>(4 * random.uniform()));
    top.push_back(static_cast<float>(0.1 + 0.9 * random.uniform()));
    logs.push_back(static_cast<float>(-6 * random.uniform()));
  }
  writer.write_tokens(ids, entropy, top, logs);
  writer.finish();
}

}  // namespace kvreplay
