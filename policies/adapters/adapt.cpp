#include "policies/adapters/adapt.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "base/error.hpp"
#include "policies/decide/directions.hpp"
#include "policies/kernels/kernels.hpp"
#include "traces/operations/cut.hpp"
#include "traces/rope.hpp"

namespace kvreplay {
namespace {

/// Appends the rows [count, dim] as columns, [dim, count].
void append_as_columns(std::span<const float> rows, std::int64_t dim, std::vector<float>& values) {
  const std::int64_t count = std::ssize(rows) / dim;
  for (std::int64_t i = 0; i < dim; ++i) {
    for (std::int64_t c = 0; c < count; ++c) {
      values.push_back(rows[static_cast<std::size_t>(c * dim + i)]);
    }
  }
}

std::vector<float> joint_lowrank(const HalfTensor& keys, std::int64_t rank) {
  const std::int64_t width = keys.heads * keys.dim;
  Directions directions(width);
  std::vector<float> flat(static_cast<std::size_t>(width));
  for (std::int64_t token = 0; token < keys.tokens; ++token) {
    for (std::int64_t head = 0; head < keys.heads; ++head) {
      kernels::to_float(keys.row(head, token), flat.data() + head * keys.dim, keys.dim);
    }
    directions.add(flat);
  }
  std::vector<float> values;
  append_as_columns(directions.leading(rank), width, values);
  return values;
}

std::vector<float> head_pca(const HalfTensor& keys) {
  std::vector<float> values;
  for (std::int64_t head = 0; head < keys.heads; ++head) {
    Directions directions(keys.dim);
    directions.add(keys, head);
    append_as_columns(directions.principal(keys.dim), keys.dim, values);
  }
  return values;
}

std::vector<float> head_skew(const HalfTensor& queries, std::int64_t queries_per_kv_head) {
  const std::int64_t dim = queries.dim;
  std::vector<float> values;
  for (std::int64_t first = 0; first < queries.heads; first += queries_per_kv_head) {
    Directions directions(dim);
    for (std::int64_t q = 0; q < queries_per_kv_head; ++q) directions.add(queries, first + q);
    const std::vector<float> leading = directions.leading(dim);
    std::vector<float> ascending;
    for (std::int64_t row = dim - 1; row >= 0; --row) {
      ascending.insert(ascending.end(), leading.begin() + row * dim,
                       leading.begin() + (row + 1) * dim);
    }
    append_as_columns(ascending, dim, values);
  }
  return values;
}

/// The rows of a tensor, each turned from its position to another.
class Spread {
 public:
  /// Of positions from `first` on; position t goes to round(t * factor).
  Spread(const HalfTensor& tensor, std::int64_t first, double factor, const RotaryEmbedding& rope) {
    std::vector<float> row(static_cast<std::size_t>(tensor.dim));
    rows_.resize(static_cast<std::size_t>(tensor.heads * tensor.tokens * tensor.dim));
    Half* to = rows_.data();
    for (std::int64_t head = 0; head < tensor.heads; ++head) {
      for (std::int64_t i = 0; i < tensor.tokens; ++i, to += tensor.dim) {
        const std::int64_t position = first + i;
        kernels::to_float(tensor.row(head, i), row.data(), tensor.dim);
        rope.rotate(row, std::llround(static_cast<double>(position) * factor) - position);
        kernels::to_half(row.data(), to, tensor.dim);
      }
    }
    tensor_ = {rows_.data(), tensor.heads, tensor.tokens, tensor.dim, tensor.tokens * tensor.dim};
  }
  [[nodiscard]] const HalfTensor& tensor() const { return tensor_; }

 private:
  std::vector<Half> rows_;  // [heads, tokens, dim]
  HalfTensor tensor_;
};

/// The model's properties that adapters depend on.
std::string shape_text(const TraceInfo& info) {
  return std::to_string(info.query_heads) + " query heads on " + std::to_string(info.kv_heads) +
         " KV heads of " + std::to_string(info.head_dim) + ", keys " + info.key_state;
}

void check_same_model(const TraceReader& from, const TraceReader& to) {
  const TraceInfo& source = from.info();
  const TraceInfo& target = to.info();
  if (shape_text(source) != shape_text(target)) {
    throw UserError({from.file(), "/"}, shape_text(source), shape_text(target));
  }
  if (source.weights_sha256 != target.weights_sha256) {
    throw UserError({from.file(), "/"}, "weights_sha256 is " + source.weights_sha256,
                    target.weights_sha256 + ", the weights of " + to.file());
  }
}

}  // namespace

std::string few_tokens_warning(std::int64_t tokens, std::int64_t width) {
  if (tokens >= width) return "";
  return "kvreplay: warning: the adapters are made of " + std::to_string(tokens) +
         " tokens, fewer than the " + std::to_string(width) +
         " elements of a token's keys: what is beyond their rank is not predicted\n";
}

std::map<std::string, Adapter> make_adapters(const TraceReader& trace, std::int64_t index,
                                             const AdaptOptions& options) {
  const TraceInfo& info = trace.info();
  const std::int64_t width = info.kv_heads * info.head_dim;
  const std::int64_t rank = options.rank.value_or(std::min(kUsualRank, width));
  if (rank < 1 || rank > width) {
    throw UserError({trace.file(), ""}, "adapt: rank is " + std::to_string(rank),
                    "1 to " + std::to_string(width) + ", kv_heads * head_dim");
  }
  TraceLayer layer = trace.load_layer(index);
  std::vector<Spread> spread;  // owns the rows
  std::int64_t positions = 0;
  if (options.positions > info.tokens) {
    positions = options.positions;
    if (info.key_state != "post_rope") {
      throw UserError({trace.file(), "/"}, "attribute key_state is " + info.key_state,
                      "post_rope: keys without RoPE have no positions to be spread over");
    }
    const RotaryEmbedding rope(info, index, trace.file());
    const double factor = static_cast<double>(positions) / static_cast<double>(info.tokens);
    spread.reserve(2);
    layer.keys = spread.emplace_back(layer.keys, 0, factor, rope).tensor();
    layer.queries = spread.emplace_back(layer.queries, layer.query_start, factor, rope).tensor();
  }
  const std::vector<std::int64_t> per_head{info.kv_heads, info.head_dim, info.head_dim};
  const auto adapter = [&](std::vector<std::int64_t> shape, std::vector<float> values,
                           std::int64_t tokens) {
    return Adapter{std::move(shape), std::move(values), info.text_sha256, tokens, positions};
  };
  return {
      {"joint_lowrank", adapter({width, rank}, joint_lowrank(layer.keys, rank), layer.keys.tokens)},
      {"head_pca", adapter(per_head, head_pca(layer.keys), layer.keys.tokens)},
      {"head_skew", adapter(per_head, head_skew(layer.queries, info.queries_per_kv_head()),
                            layer.queries.tokens)}};
}

void adapt_trace(const TraceReader& from, const TraceReader& to, const AdaptOptions& options,
                 const std::string& out) {
  check_same_model(from, to);
  const std::vector<std::int64_t>& held = from.info().recorded_layers;
  CutOptions whole;
  for (const std::int64_t layer : to.info().recorded_layers) {
    const auto found = std::find(held.begin(), held.end(), layer);
    if (found == held.end()) {
      throw UserError({from.file(), "/layer"},
                      "layer " + std::to_string(layer) + " is not recorded",
                      "every layer of " + to.file());
    }
    whole.adapters[layer] = make_adapters(from, found - held.begin(), options);
  }
  from.check_unchanged();
  cut_trace(to, whole, out);
}

std::vector<std::string> adapters_of_own_text(const TraceReader& trace) {
  std::set<std::string> names;
  const std::string& text = trace.info().text_sha256;
  for (std::int64_t index = 0; index < std::ssize(trace.info().recorded_layers); ++index) {
    for (const std::string& name : trace.adapter_names(index)) {
      if (!text.empty() && trace.load_adapter(index, name)->text_sha256 == text) {
        names.insert(name);
      }
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace kvreplay
