#include "sim/models/record.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <span>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/parameters.hpp"
#include "base/progress.hpp"
#include "policies/kernels/kernels.hpp"
#include "sim/models/full_attention.hpp"
#include "sim/models/trace_rows.hpp"
#include "sim/models/transformer.hpp"
#include "traces/trace_writer.hpp"

namespace kvreplay {
namespace {

void check(const Model& model, const RecordOptions& options) {
  const std::int64_t tokens = options.prompt_tokens + options.steps;
  check_text(model, options.ids, options.prompt_tokens, options.steps,
             options.sampling ? options.prompt_tokens : tokens);
  const std::int64_t layers = model.architecture().layers;
  for (std::size_t i = 0; i < options.layers.size(); ++i) {
    const std::int64_t layer = options.layers[i];
    if (layer < 0 || layer >= layers || (i > 0 && layer <= options.layers[i - 1])) {
      throw UserError({"--layers", ""}, "layer " + std::to_string(layer),
                      "0 to " + std::to_string(layers - 1) + ", increasing");
    }
  }
  if (options.query_window < 0 || options.query_window > options.prompt_tokens) {
    throw UserError({"--query-window", ""}, std::to_string(options.query_window),
                    "0 to " + std::to_string(options.prompt_tokens) + ", the prompt's tokens");
  }
}

}  // namespace

TraceInfo trace_info(const Model& model, const RecordOptions& options) {
  const Architecture& a = model.architecture();
  TraceInfo info;
  info.model = model.name();
  info.weights_sha256 = model.source_sha256();
  info.layers = a.layers;
  info.query_heads = a.query_heads;
  info.kv_heads = a.kv_heads;
  info.head_dim = a.head_dim;
  info.hidden_size = a.hidden_size;
  info.recorded_layers = options.layers;
  if (options.layers.empty()) {
    info.recorded_layers.resize(static_cast<std::size_t>(a.layers));
    std::iota(info.recorded_layers.begin(), info.recorded_layers.end(), 0);
  }
  std::vector<double> thetas;
  for (const std::int64_t layer : info.recorded_layers) {
    info.sliding_window.push_back(a.sliding_window[static_cast<std::size_t>(layer)]);
    thetas.push_back(a.rope_theta[static_cast<std::size_t>(layer)]);
  }
  info.prompt_tokens = options.prompt_tokens;
  info.tokens = options.prompt_tokens + options.steps;
  info.dtype = "f16";
  info.key_state = "post_rope";
  info.rope_theta = thetas.front();
  info.rope_pairs = a.rope_interleaved ? "interleaved" : "half";
  info.rope_scaling = a.rope_scaling;
  if (std::any_of(thetas.begin(), thetas.end(), [&](double t) { return t != thetas.front(); })) {
    info.rope_scaling = "by layer";
    info.layer_rope_theta = thetas;
  }
  info.softmax_scale = a.softmax_scale;
  info.tokenizer = model.tokenizer_name();
  info.text_source = options.text_source;
  info.text_sha256 = options.text_sha256;
  const std::optional<SamplingOptions>& drawn = options.sampling ? options.sampling : options.drawn;
  info.text_mode = !drawn ? "teacher_forced" : drawn->temperature == 0 ? "greedy" : "sampled";
  info.segments = options.segments;
  info.tool = "kvreplay record";
  info.tool_version = version();
  info.seed = drawn ? static_cast<std::int64_t>(drawn->seed) : 0;
  info.created_utc = options.created_utc;
  return info;
}

namespace {

/// The model's own attention, which hands on what it sees of the recorded layers to the trace.
class RecordingAttention final : public Attention {
 public:
  RecordingAttention(const Architecture& architecture, const TraceInfo& info,
                     TraceWriter::Queries queries, WorkerPool& pool, TraceWriter& writer)
      : rows_(architecture, info, queries, pool, writer), full_(architecture, info.tokens, pool) {}

  void attend(const LayerBatch& batch, float* outputs) override {
    rows_.keep(batch);
    full_.attend(batch, outputs);
  }
  [[nodiscard]] bool wants_queries_ahead() const override { return rows_.wants_queries_ahead(); }
  void take_residual_norms(std::int64_t layer, std::span<const float> norms) override {
    rows_.keep_residual_norms(layer, norms);
  }
  [[nodiscard]] bool wants_residual_norms() const override { return rows_.in_queries(); }

  /// Before a batch from `position` on.
  void begin(std::int64_t position) { rows_.begin(position); }
  void write(bool all) { rows_.write(all); }
  void write_output_weights(const Model& model) { rows_.write_output_weights(model); }

 private:
  TraceRows rows_;
  FullAttention full_;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void check_text(const Model& model, std::span<const std::int32_t> ids, std::int64_t prompt_tokens,
                std::int64_t steps, std::int64_t needed) {
  const Architecture& a = model.architecture();
  if (prompt_tokens < 1)
    throw UserError({"--prompt", ""}, std::to_string(prompt_tokens), "1 or more");
  if (steps < 1) throw UserError({"--steps", ""}, std::to_string(steps), "1 or more");
  // Checked separately first, because their sum might overflow.
  if (prompt_tokens > a.context_tokens || steps > a.context_tokens ||
      prompt_tokens + steps > a.context_tokens) {
    throw UserError(
        {"--prompt, --steps", ""},
        std::to_string(prompt_tokens) + " and " + std::to_string(steps) + " tokens",
        std::to_string(a.context_tokens) + " or fewer together, the context of " + model.name());
  }
  if (std::ssize(ids) < needed) {
    throw UserError({"--prompt, --steps", ""},
                    "a text of " + std::to_string(ids.size()) + " tokens",
                    std::to_string(needed) + " tokens or more");
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= a.vocabulary) {
      throw UserError(
          {"", ""}, "token id " + std::to_string(ids[i]) + " at position " + std::to_string(i),
          "0 to " + std::to_string(a.vocabulary - 1) + ", the vocabulary of " + model.name());
    }
  }
}

double token_flops(const Architecture& a, std::int64_t position) {
  const std::int64_t layer =
      2 * a.hidden_size * (a.query_size() + a.kv_size()) + 3 * a.hidden_size * a.ffn_size;
  std::int64_t seen = 0;  // over all layers
  for (std::int64_t i = 0; i < a.layers; ++i) seen += position + 1 - a.first_seen(i, position);
  return 2.0 * static_cast<double>(a.layers * layer + 2 * a.query_size() * seen +
                                   a.hidden_size * a.vocabulary);
}

/// Reading the weights for a batch of tokens takes as long as computing so many: estimate, of a
/// 1.5B model on two x86-64 cores, 0.41 s per step alone and 0.028 s per token in chunks.
constexpr double kTokensPerWeightRead = 14;

/// Of positions [begin, end) as one batch, in floating-point operations.
double batch_work(const Architecture& architecture, std::int64_t begin, std::int64_t end) {
  return static_cast<double>(end - begin) * token_flops(architecture, (begin + end) / 2) +
         kTokensPerWeightRead * token_flops(architecture, 0);
}

RecordResult record_trace(const Model& model, const RecordOptions& options,
                          const std::string& out) {
  check(model, options);
  const TraceInfo info = trace_info(model, options);
  const TraceWriter::Queries queries{.start = info.prompt_tokens - options.query_window,
                                     .ahead = options.queries_ahead,
                                     .attention_input = options.attention_input};
  WorkerPool pool(options.threads);
  Transformer transformer(model, info.tokens, pool);
  TraceWriter writer(out, info, queries);
  RecordingAttention attention(model.architecture(), info, queries, pool, writer);
  TokenStatistics statistics(info.tokens);
  std::optional<Progress> progress;
  if (options.show_progress) {
    double work = 0;
    const std::int64_t alone = options.sampling ? 1 : options.chunk_tokens;
    for (std::int64_t begin = 0, end = 0; begin < info.tokens; begin = end) {
      const bool in_prompt = begin < info.prompt_tokens;
      end = std::min(begin + (in_prompt ? options.chunk_tokens : alone),
                     in_prompt ? info.prompt_tokens : info.tokens);
      work += batch_work(model.architecture(), begin, end);
    }
    progress.emplace("recording", static_cast<std::int64_t>(work * 1e-6));
  }

  std::vector<std::int32_t> ids = options.ids;
  ids.resize(static_cast<std::size_t>(options.sampling ? info.prompt_tokens : info.tokens));
  std::vector<std::int64_t> positions(static_cast<std::size_t>(info.tokens));
  std::iota(positions.begin(), positions.end(), 0);

  /// Runs positions [begin, end) as one batch. Returns the logits of the last one.
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    const auto first = static_cast<std::size_t>(begin);
    const auto count = static_cast<std::size_t>(end - begin);
    attention.begin(begin);
    const std::span<const float> hidden =
        transformer.run(std::span(ids).subspan(first, count),
                        std::span(positions).subspan(first, count), attention);
    attention.write(false);
    const std::span<const std::int32_t> next = std::span(ids).subspan(first + 1);
    const std::span<const float> logits =
        statistics.add(transformer, begin, hidden, next.first(std::min(count, next.size())));
    if (progress) {
      progress->advance(
          static_cast<std::int64_t>(batch_work(model.architecture(), begin, end) * 1e-6));
    }
    return logits;
  };
  std::span<const float> logits;
  const auto run_all = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t next = begin; begin < end; begin = next) {
      next = std::min(begin + options.chunk_tokens, end);
      if (begin < queries.start) next = std::min(next, queries.start);
      logits = run(begin, next);
    }
  };

  RecordResult result;
  auto start = std::chrono::steady_clock::now();
  run_all(0, info.prompt_tokens);
  result.prompt_s = seconds_since(start);
  start = std::chrono::steady_clock::now();
  if (!options.sampling) {
    run_all(info.prompt_tokens, info.tokens);
  } else {
    Sampler sampler(*options.sampling);
    for (std::int64_t position = info.prompt_tokens; position < info.tokens; ++position) {
      ids.push_back(sampler.draw(logits));
      statistics.follow(position - 1, logits, ids.back());
      logits = run(position, position + 1);
    }
  }
  result.steps_s = seconds_since(start);

  attention.write(true);
  attention.write_output_weights(model);
  statistics.log_probability.back() = 0;
  writer.write_tokens(ids, statistics.entropy, statistics.top_probability,
                      statistics.log_probability);
  for (std::size_t i = 0; i < options.adapters.size(); ++i) {
    for (const auto& [name, adapter] : options.adapters[i]) {
      writer.write_adapter(static_cast<std::int64_t>(i), name, adapter);
    }
  }
  model.check_unchanged();
  writer.finish();

  for (std::int64_t position = 0; position < info.tokens; ++position) {
    (position < info.prompt_tokens ? result.prompt_flops : result.steps_flops) +=
        token_flops(model.architecture(), position);
  }
  result.perplexity = statistics.perplexity(0);
  result.decode_perplexity = statistics.perplexity(info.prompt_tokens);
  return result;
}

}  // namespace kvreplay
