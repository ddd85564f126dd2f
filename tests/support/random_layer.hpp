#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/random.hpp"
#include "policies/decide/layer_policy.hpp"

namespace kvreplay {

/// Random keys, values and queries of one layer, in memory, with grouped queries: by default 6
/// query heads on 2 KV heads. Neighbouring keys are similar, so that pages and clusters mean
/// something.
class RandomLayer {
 public:
  explicit RandomLayer(std::int64_t prompt, std::int64_t steps, std::uint64_t seed = 1,
                       std::int64_t query_heads = 6, std::int64_t kv_heads = 2,
                       std::int64_t head_dim = 16)
      : shape{.layer = 3,
              .query_heads = query_heads,
              .kv_heads = kv_heads,
              .head_dim = head_dim,
              .softmax_scale = 1 / std::sqrt(static_cast<float>(head_dim)),
              .prompt_tokens = prompt,
              .max_tokens = prompt + steps} {
    Random random(seed);
    const std::int64_t tokens = prompt + steps;
    keys = rows(random, kv_heads, tokens, 6);
    values = rows(random, kv_heads, tokens, 1);
    queries = rows(random, query_heads, tokens, 1);
  }

  [[nodiscard]] Entries entries(std::int64_t tokens) const {
    return Entries{view(keys, shape.kv_heads), view(values, shape.kv_heads)}.first_tokens(tokens);
  }
  [[nodiscard]] HalfTensor query_tensor() const { return view(queries, shape.query_heads); }
  [[nodiscard]] std::vector<float> query(std::int64_t position) const {
    std::vector<float> row;
    for (std::int64_t head = 0; head < shape.query_heads; ++head) {
      for (std::int64_t i = 0; i < shape.head_dim; ++i) {
        row.push_back(2 * to_float(query_tensor().row(head, position)[i]));
      }
    }
    return row;
  }
  /// q . k in double precision.
  [[nodiscard]] double logit(std::int64_t query_head, std::int64_t position, Token token) const {
    const std::int64_t kv = query_head / (shape.query_heads / shape.kv_heads);
    const std::vector<float> q = query(position);
    double sum = 0;
    for (std::int64_t i = 0; i < shape.head_dim; ++i) {
      sum += static_cast<double>(q[static_cast<std::size_t>(query_head * shape.head_dim + i)]) *
             static_cast<double>(to_float(entries(token + 1).keys.row(kv, token)[i]));
    }
    return sum;
  }

  /// All KV heads of the layer as one stream.
  [[nodiscard]] StreamShape joint_stream() const { return shape.stream(0, shape.kv_heads); }

  LayerShape shape;
  std::vector<Half> keys;     // [kv_heads, tokens, head_dim]
  std::vector<Half> values;   // [kv_heads, tokens, head_dim]
  std::vector<Half> queries;  // [query_heads, tokens, head_dim]

 private:
  /// `run` consecutive rows are similar.
  [[nodiscard]] std::vector<Half> rows(Random& random, std::int64_t heads, std::int64_t tokens,
                                       std::int64_t run) const {
    std::vector<Half> all;
    std::vector<double> topic(static_cast<std::size_t>(shape.head_dim));
    for (std::int64_t row = 0; row < heads * tokens; ++row) {
      for (double& x : topic) {
        if (row % run == 0) x = 2 * random.uniform() - 1;
        const double own = run == 1 ? 0 : 0.6 * (random.uniform() - 0.5);
        all.push_back(to_half(static_cast<float>(x + own)));
      }
    }
    return all;
  }
  [[nodiscard]] HalfTensor view(const std::vector<Half>& data, std::int64_t heads) const {
    return {data.data(), heads, shape.max_tokens, shape.head_dim,
            shape.max_tokens * shape.head_dim};
  }
};

[[nodiscard]] inline DecideSpec decide_spec(const std::string& json) {
  return DecideSpec::parse(ConfigNode::parse(json, "test.json"));
}

/// Drives a layer policy through a layer from start to end. `after_attend(step, attention)` sees
/// each step.
template <typename AfterAttend>
LayerLog replay_layer(const RandomLayer& layer, const DecideSpec& spec, AfterAttend&& after_attend,
                      std::uint64_t seed = 1) {
  LayerPolicy policy(spec, layer.shape, {.seed = seed, .record_tokens = true});
  const std::int64_t prompt = layer.shape.prompt_tokens;
  policy.add_prompt(layer.entries(prompt), {layer.query_tensor().first_tokens(prompt), 0});
  for (std::int64_t n = prompt; n < layer.shape.max_tokens; ++n) {
    const std::vector<float> query = layer.query(n);
    after_attend(n - prompt, policy.attend(layer.entries(n + 1), query, query));
    policy.add_token(layer.entries(n + 1));
  }
  return std::move(policy).finish();
}

[[nodiscard]] inline LayerLog replay_layer(const RandomLayer& layer, const DecideSpec& spec) {
  return replay_layer(layer, spec, [](std::int64_t, std::span<const HeadAttention>) {});
}

}  // namespace kvreplay
