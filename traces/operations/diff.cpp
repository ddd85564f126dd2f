#include "traces/operations/diff.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <span>
#include <sstream>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "traces/trace_paths.hpp"

namespace kvreplay {
namespace {

/// Largest number of uncompared paths in the last line; all are listed above it.
constexpr std::size_t kMaxPaths = 8;

std::string text_of(const std::string& text) {
  return "'" + printable(text) + "'";
}
std::string text_of(std::int64_t value) {
  return std::to_string(value);
}
std::string text_of(double value) {
  std::ostringstream stream;
  stream.precision(17);
  stream << value;
  return stream.str();
}
template <typename T>
std::string text_of(const std::vector<T>& values) {
  std::vector<std::string> names;
  for (const T value : values) names.push_back(text_of(value));
  return "[" + join(names) + "]";
}

std::string segments_text(const TraceInfo& info) {
  std::vector<std::string> texts;
  for (const Segment& segment : info.segments) {
    texts.push_back(segment.role + (segment.generated ? " generated" : "") + " from " +
                    std::to_string(segment.begin));
  }
  return texts.empty() ? "none" : join(texts);
}

/// Accumulates the difference of one data set.
class Sum {
 public:
  void add(double a, double b) {
    const double error = std::abs(a - b);
    max_ = std::max(max_, error);
    errors_ += error * error;
    squares_ += a * a;
  }
  [[nodiscard]] ValueDifference at(const std::string& path) const {
    const double relative = squares_ > 0  ? std::sqrt(errors_ / squares_)
                            : errors_ > 0 ? std::numeric_limits<double>::infinity()
                                          : 0;
    return {path, max_, relative};
  }

 private:
  double max_ = 0;
  double errors_ = 0;
  double squares_ = 0;
};

class Comparison {
 public:
  Comparison(const TraceReader& first, const TraceReader& second) : a_(first), b_(second) {}

  TraceDifference run() {
    attributes();
    if (a_.info().tokens != b_.info().tokens) {
      mismatch("/tokens", text_of(a_.info().tokens), text_of(b_.info().tokens));
    } else {
      rows(token_path("id"), a_.token_ids(), b_.token_ids());
      for (const char* name : kTokenStatistics) {
        rows(token_path(name), a_.token_statistic(name), b_.token_statistic(name));
      }
    }
    std::map<std::int64_t, std::int64_t> in_a = layer_indices(a_);
    std::map<std::int64_t, std::int64_t> in_b = layer_indices(b_);
    for (const auto& [number, index] : in_a) {
      if (const auto found = in_b.find(number); found != in_b.end()) {
        layer(index, found->second);
        in_b.erase(found);
      } else {
        mismatch(layer_group(number), "held", "none");
      }
    }
    for (const auto& [number, index] : in_b) mismatch(layer_group(number), "none", "held");
    return std::move(difference_);
  }

 private:
  /// By the model's layer number.
  static std::map<std::int64_t, std::int64_t> layer_indices(const TraceReader& trace) {
    std::map<std::int64_t, std::int64_t> indices;
    for (const std::int64_t number : trace.info().recorded_layers) {
      indices.emplace(number, std::ssize(indices));
    }
    return indices;
  }

  void attributes() {
    const TraceInfo& a = a_.info();
    const TraceInfo& b = b_.info();
    const auto compare = [&](const char* name, const auto& x, const auto& y) {
      if (x != y) text(std::string("/ ") + name, text_of(x), text_of(y));
    };
    const auto flag = [](bool set) { return std::int64_t{set ? 1 : 0}; };
    compare("model", a.model, b.model);
    compare("model_revision", a.model_revision, b.model_revision);
    compare("weights_sha256", a.weights_sha256, b.weights_sha256);
    compare("layers", a.layers, b.layers);
    compare("query_heads", a.query_heads, b.query_heads);
    compare("kv_heads", a.kv_heads, b.kv_heads);
    compare("head_dim", a.head_dim, b.head_dim);
    compare("hidden_size", a.hidden_size, b.hidden_size);
    compare("recorded_layers", a.recorded_layers, b.recorded_layers);
    compare("prompt_tokens", a.prompt_tokens, b.prompt_tokens);
    compare("tokens", a.tokens, b.tokens);
    compare("dtype", a.dtype, b.dtype);
    compare("key_state", a.key_state, b.key_state);
    compare("rope_theta", a.rope_theta, b.rope_theta);
    compare("rope_pairs", a.rope_pairs, b.rope_pairs);
    compare("rope_scaling", a.rope_scaling, b.rope_scaling);
    compare("layer_rope_theta", a.layer_rope_theta, b.layer_rope_theta);
    compare("softmax_scale", a.softmax_scale, b.softmax_scale);
    compare("sliding_window", a.sliding_window, b.sliding_window);
    compare("tokenizer", a.tokenizer, b.tokenizer);
    compare("text_source", a.text_source, b.text_source);
    compare("text_sha256", a.text_sha256, b.text_sha256);
    if (a.segments != b.segments) text("/ segments", segments_text(a), segments_text(b));
    compare("text_mode", a.text_mode, b.text_mode);
    compare("tool", a.tool, b.tool);
    compare("tool_version", a.tool_version, b.tool_version);
    compare("seed", a.seed, b.seed);
    compare("created_utc", a.created_utc, b.created_utc);
    compare("synthetic", flag(a.synthetic), flag(b.synthetic));
  }

  void layer(std::int64_t index_a, std::int64_t index_b) {
    const TraceLayer a = a_.load_layer(index_a);
    const TraceLayer b = b_.load_layer(index_b);
    tensors(layer_path(a.layer, "key"), a.keys, b.keys);
    tensors(layer_path(a.layer, "value"), a.values, b.values);
    if (a.query_start != b.query_start) {
      text(layer_path(a.layer, "query") + " query_start", text_of(a.query_start),
           text_of(b.query_start));
    }
    tensors(layer_path(a.layer, "query"), a.queries, b.queries);
    tensors(layer_path(a.layer, "query_ahead"), a.queries_ahead, b.queries_ahead);
    tensors(layer_path(a.layer, "attention_input"), a.attention_input, b.attention_input);

    output_weights(a.layer, a_.load_output_weights(index_a), b_.load_output_weights(index_b));

    std::vector<std::string> names = a_.adapter_names(index_a);
    for (const std::string& name : b_.adapter_names(index_b)) names.push_back(name);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const std::string& name : names) {
      const std::string path = adapter_group(a.layer) + "/" + name;
      const auto x = a_.load_adapter(index_a, name);
      const auto y = b_.load_adapter(index_b, name);
      if (!x || !y || x->shape != y->shape) {
        mismatch(path, x ? text_of(x->shape) : "none", y ? text_of(y->shape) : "none");
      } else {
        rows(path, x->values, y->values);
      }
    }
  }

  void output_weights(std::int64_t layer, const std::optional<OutputWeights>& a,
                      const std::optional<OutputWeights>& b) {
    const auto compare = [&](const char* name, std::vector<float> OutputWeights::*values) {
      const auto size = [&](const std::optional<OutputWeights>& weights) {
        return weights ? std::ssize((*weights).*values) : 0;
      };
      if (size(a) == size(b)) {
        if (a) rows(layer_path(layer, name), (*a).*values, (*b).*values);
        return;
      }
      const auto text = [&](std::int64_t found) {
        return found == 0 ? "none" : text_of(found) + " values";
      };
      mismatch(layer_path(layer, name), text(size(a)), text(size(b)));
    };
    compare(kOutputSketch, &OutputWeights::sketch);
    compare(kResidualNorm, &OutputWeights::residual_norm);
  }

  void tensors(const std::string& path, const HalfTensor& a, const HalfTensor& b) {
    if (a.tokens == 0 && b.tokens == 0) return;
    const auto shape = [](const HalfTensor& tensor) -> std::vector<std::int64_t> {
      if (tensor.tokens == 0) return {};
      return {tensor.heads, tensor.tokens, tensor.dim};
    };
    if (shape(a) != shape(b)) {
      const auto name = [&](const HalfTensor& tensor) {
        return tensor.tokens == 0 ? "none" : text_of(shape(tensor));
      };
      mismatch(path, name(a), name(b));
      return;
    }
    Sum sum;
    for (std::int64_t head = 0; head < a.heads; ++head) {
      for (std::int64_t i = 0; i < a.tokens * a.dim; ++i) {
        sum.add(static_cast<double>(to_float(a.head(head)[i])),
                static_cast<double>(to_float(b.head(head)[i])));
      }
    }
    difference_.values.push_back(sum.at(path));
  }

  template <typename T>
  void rows(const std::string& path, const std::vector<T>& a, const std::vector<T>& b) {
    Sum sum;
    for (std::size_t i = 0; i < a.size(); ++i) {
      sum.add(static_cast<double>(a[i]), static_cast<double>(b[i]));
    }
    difference_.values.push_back(sum.at(path));
  }

  void text(const std::string& path, const std::string& first, const std::string& second) {
    difference_.texts.push_back({path, first, second});
  }

  /// Records values that cannot be compared.
  void mismatch(const std::string& path, const std::string& first, const std::string& second) {
    text(path, first, second);
    difference_.not_compared.push_back(path);
  }

  const TraceReader& a_;
  const TraceReader& b_;
  TraceDifference difference_;
};

}  // namespace

bool TraceDifference::same() const {
  return texts.empty() && std::all_of(values.begin(), values.end(),
                                      [](const ValueDifference& set) { return set.max == 0; });
}

TraceDifference diff_traces(const TraceReader& first, const TraceReader& second) {
  return Comparison(first, second).run();
}

std::string to_text(const TraceDifference& difference) {
  std::string text;
  for (const TextDifference& found : difference.texts) {
    text += found.path + ": " + found.first + " | " + found.second + '\n';
  }
  std::size_t equal = 0;
  for (const ValueDifference& set : difference.values) {
    if (set.max == 0) {
      equal += 1;
      continue;
    }
    char line[96];
    std::snprintf(line, sizeof line, ": largest difference %.6g, relative %.6g\n", set.max,
                  set.relative);
    text += set.path + line;
  }
  text += std::to_string(equal) + " of " + std::to_string(difference.values.size()) +
          " data sets are equal";
  std::vector<std::string> paths = difference.not_compared;
  if (paths.size() > kMaxPaths) {
    paths[kMaxPaths - 1] = "and " + std::to_string(paths.size() - kMaxPaths + 1) + " more";
    paths.resize(kMaxPaths);
  }
  if (!paths.empty()) text += "; not compared: " + join(paths);
  return text + '\n';
}

}  // namespace kvreplay
