#include "policies/decide/decide.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "policies/decide/layer_ratios.hpp"
#include "policies/decide/log/log_check.hpp"
#include "policies/decide/precision/support/token_features.hpp"
#include "policies/decide/quality.hpp"
#include "policies/decide/trace_adapters.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

void check(const TraceReader& trace, std::span<const NamedDecideSpec> systems) {
  const TraceInfo& info = trace.info();
  if (info.key_state != "post_rope") {
    throw UserError({trace.file(), "/"}, "attribute key_state is " + info.key_state,
                    "post_rope: attention is computed from the keys as they are; `kvreplay convert "
                    "--key-state post_rope` writes such a trace");
  }
  const bool has_look_ahead = trace.load_layer(0).queries_ahead.tokens > 0;
  for (const NamedDecideSpec& system : systems) {
    if (system.spec.stream.text("query") == "look_ahead" && !has_look_ahead) {
      throw UserError(system.spec.stream.place("query"),
                      "look_ahead, but " + trace.file() + " holds no query_ahead",
                      "current, or a trace with look-ahead queries");
    }
  }
}

/// The RoPE of the recorded layer at `index`. None where the trace does not state it, or where it
/// is scaled: its frequencies then differ from those of the base.
std::optional<RotaryEmbedding> rope_of(const TraceInfo& info, std::int64_t index) {
  if (!info.rope_known()) return std::nullopt;
  return RotaryEmbedding(info.rope_theta_at(index), info.rope_pairs == "interleaved",
                         info.head_dim);
}

LayerShape layer_shape(const TraceInfo& info, const WindowedLayer& layer, std::int64_t steps) {
  const auto at = static_cast<std::size_t>(layer.index);
  return {.layer = info.recorded_layers[at],
          .query_heads = info.query_heads,
          .kv_heads = info.kv_heads,
          .head_dim = info.head_dim,
          .softmax_scale = static_cast<float>(info.softmax_scale),
          .prompt_tokens = info.prompt_tokens,
          .max_tokens = info.prompt_tokens + steps,
          .sliding_window = layer.sliding_window,
          .rope = rope_of(info, layer.index)};
}

QueryWindow prompt_window(const TraceLayer& layer, std::int64_t prompt_tokens) {
  return {layer.queries.first_tokens(prompt_tokens - layer.query_start), layer.query_start};
}

/// Retention's layer ratios, [systems][layers]: 1 where a system compares no layers.
using LayerRatios = std::vector<std::vector<double>>;

/// The scores of each system for a recorded layer; 0 where it compares no layers.
std::vector<double> layer_scores(const TraceReader& trace, const WindowedLayer& recorded,
                                 std::span<const NamedDecideSpec> systems) {
  const LayerShape layer = layer_shape(trace.info(), recorded, 0);
  std::vector<double> scores;
  for (const NamedDecideSpec& system : systems) {
    scores.push_back(0);
    if (!compares_layers(system.spec, layer)) continue;
    const TraceLayer data = trace.load_layer(recorded.index);
    scores.back() = layer_score(system.spec, layer,
                                Entries{data.keys, data.values}.first_tokens(layer.prompt_tokens),
                                prompt_window(data, layer.prompt_tokens));
  }
  return scores;
}

LayerRatios all_layer_ratios(const TraceReader& trace, std::span<const WindowedLayer> layers,
                             std::span<const NamedDecideSpec> systems, int threads) {
  std::vector<std::vector<double>> scores(layers.size());
  parallel_for(std::ssize(scores), threads, [&](std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    scores[at] = layer_scores(trace, layers[at], systems);
  });
  LayerRatios ratios;
  for (std::size_t s = 0; s < systems.size(); ++s) {
    std::vector<double> of_system;
    for (const std::vector<double>& of_layer : scores) of_system.push_back(of_layer[s]);
    ratios.push_back(layer_ratios(of_system));
  }
  return ratios;
}

/// The queries of one position, for all heads.
class StepQueries {
 public:
  QueryRows load(const HalfTensor& queries, std::int64_t index) {
    rows_.resize(static_cast<std::size_t>(queries.heads * queries.dim));
    if (queries.tokens == 0) return {};
    for (std::int64_t head = 0; head < queries.heads; ++head) {
      kernels::to_float(queries.row(head, index), rows_.data() + head * queries.dim, queries.dim);
    }
    return rows_;
  }

 private:
  std::vector<float> rows_;
};

/// Room for steps x heads.
Quality sized_quality(std::int64_t values) {
  Quality quality;
  const auto size = static_cast<std::size_t>(values);
  for (auto* metric : {&quality.recall, &quality.attention_mass, &quality.best_attention_mass,
                       &quality.output_error}) {
    metric->resize(size);
  }
  return quality;
}

void put(Quality& quality, std::int64_t index, const HeadQuality& value) {
  const auto at = static_cast<std::size_t>(index);
  quality.recall[at] = value.recall;
  quality.attention_mass[at] = value.attention_mass;
  quality.best_attention_mass[at] = value.best_attention_mass;
  quality.output_error[at] = value.output_error;
}

/// How the threads are shared out: so many layers at once, each with so many threads.
struct Threads {
  std::int64_t layers = 1;
  int each = 1;
};

/// Systems of one layer share its full attention and need a barrier at every step, which is worth
/// it for several systems a thread; layers need none, but each holds what its systems store.
Threads share_out(int threads, std::int64_t systems, std::int64_t layers) {
  constexpr std::int64_t kSystemsPerThread = 4;
  const std::int64_t all = std::max(threads, 1);
  const std::int64_t each = std::clamp<std::int64_t>(systems / kSystemsPerThread, 1, all);
  const std::int64_t at_once =
      std::clamp<std::int64_t>(all / each, 1, std::max<std::int64_t>(layers, 1));
  return {at_once, static_cast<int>(all / at_once)};
}

/// Every trace has what a token's features are computed from.
class AnyFeatures final : public TokenFeatureSource {
 public:
  [[nodiscard]] const TokenFeatures& features() const override { return none_; }

 private:
  TokenFeatures none_;
};

struct DecidedLayer {
  LayerLog log;
  std::vector<EntryFormat> formats;
  AttendedBound bound;
};

/// Replays layers[index] through all systems in lockstep, on so many threads. Returns one
/// DecidedLayer per system.
std::vector<DecidedLayer> decide_layer(const TraceReader& trace,
                                       std::span<const WindowedLayer> layers, std::size_t index,
                                       std::int64_t steps, std::span<const NamedDecideSpec> systems,
                                       const LayerRatios& ratios,
                                       const TokenFeatureSource& features,
                                       const DecideOptions& options, int threads) {
  const TraceLayer data = trace.load_layer(layers[index].index);
  const Entries entries{data.keys, data.values};
  const std::int64_t prompt = trace.info().prompt_tokens;
  const LayerShape shape = layer_shape(trace.info(), layers[index], steps);
  const QueryWindow window = prompt_window(data, prompt);

  std::vector<LayerPolicy> policies;
  std::vector<std::unique_ptr<const TraceAdapters>> adapters;
  for (std::size_t i = 0; i < systems.size(); ++i) {
    adapters.push_back(std::make_unique<const TraceAdapters>(trace, systems[i].name));
    LayerShape of_system = shape;
    of_system.model_heads = systems[i].model_heads;
    policies.emplace_back(systems[i].spec, of_system,
                          PolicyOptions{.adapters = adapters.back().get(),
                                        .features = &features,
                                        .seed = options.seed,
                                        .record_tokens = options.record_tokens,
                                        .layer_ratio = ratios[i][index]});
  }
  WorkerPool pool(threads);
  const auto each_system = [&](const auto& work) {
    pool.run(std::ssize(systems), [&](std::int64_t i) { work(static_cast<std::size_t>(i)); });
  };
  each_system([&](std::size_t i) { policies[i].add_prompt(entries.first_tokens(prompt), window); });

  std::vector<Quality> quality(systems.size(), sized_quality(steps * shape.query_heads));
  const std::optional<OutputWeights> weights = trace.load_output_weights(layers[index].index);
  std::vector<ResidualError> residual;
  if (weights) {
    for (std::size_t i = 0; i < systems.size(); ++i) residual.emplace_back(*weights);
  }
  std::vector<std::span<const HeadAttention>> attention(systems.size());
  ExactStep exact;
  StepQueries current;
  StepQueries ahead;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Entries so_far = entries.first_tokens(prompt + step + 1);
    const std::int64_t query = prompt + step - data.query_start;
    const QueryRows queries = current.load(data.queries, query);
    const QueryRows look_ahead = ahead.load(data.queries_ahead, query);
    exact.compute(shape, so_far, queries, &pool);
    if (!exact.finite()) {
      throw UserError({trace.file(), "/layer/" + std::to_string(shape.layer)},
                      "attention at position " + std::to_string(prompt + step) + " is not finite",
                      "finite vectors and scale; `kvreplay verify` finds a value that is not");
    }
    each_system([&](std::size_t i) {
      attention[i] = policies[i].attend(so_far, queries, look_ahead, &exact);
      if (!residual.empty()) {
        quality[i].residual_error.push_back(residual[i].measure(exact, attention[i], query));
      }
      policies[i].add_token(so_far);
    });
    // By heads, because systems share what full attention would have chosen for a head.
    pool.run(shape.query_heads, [&](std::int64_t head) {
      for (std::size_t i = 0; i < systems.size(); ++i) {
        put(quality[i], step * shape.query_heads + head,
            measure(exact, head, attention[i][static_cast<std::size_t>(head)]));
      }
    });
    if (options.progress != nullptr) options.progress->advance();
  }

  std::vector<DecidedLayer> decided;
  for (std::size_t i = 0; i < policies.size(); ++i) {
    std::vector<EntryFormat> formats = policies[i].formats();
    const AttendedBound bound = policies[i].bound();
    decided.push_back({std::move(policies[i]).finish(), std::move(formats), bound});
    decided.back().log.quality = std::move(quality[i]);
  }
  return decided;
}

}  // namespace

std::vector<TurnSteps> turns_of(const TraceInfo& info, std::int64_t steps) {
  std::vector<TurnSteps> turns;
  if (info.segments.empty()) return turns;
  for (const Turn& turn : info.turns()) {
    const TurnSteps found{std::max<std::int64_t>(0, turn.begin - info.prompt_tokens),
                          turn.generated_begin - info.prompt_tokens,
                          std::min(turn.end - info.prompt_tokens, steps)};
    if (found.generated_begin < found.end) turns.push_back(found);
  }
  return turns;
}

std::vector<WindowedLayer> recorded_layers(const TraceInfo& info) {
  std::vector<WindowedLayer> layers;
  for (std::size_t i = 0; i < info.recorded_layers.size(); ++i) {
    layers.push_back({static_cast<std::int64_t>(i), info.sliding_window[i]});
  }
  return layers;
}

void check_decidable(const TraceReader& trace, const NamedDecideSpec& system) {
  check(trace, std::span(&system, 1));
  const TraceAdapters adapters(trace, system.name);
  const AnyFeatures features;
  const TraceInfo& info = trace.info();
  for (const WindowedLayer& layer : recorded_layers(info)) {
    LayerShape shape = layer_shape(info, layer, info.decode_steps());
    shape.max_tokens = 1;  // nothing will be stored
    shape.model_heads = system.model_heads;
    static_cast<void>(
        LayerPolicy(system.spec, shape, {.adapters = &adapters, .features = &features}));
  }
}

void check_log_invariants(const AccessLog& log, const DecideSpec& spec) {
  SelectionBound bound;
  const std::map<std::string, Argument, std::less<>>& arguments = spec.selection.arguments().all();
  const auto groups = arguments.find("groups");
  const bool by_tokens =
      groups == arguments.end() || groups->second.value == Value(std::int64_t{0});
  if (arguments.contains("budget_tokens") && by_tokens) {
    bound.tokens = spec.selection.arguments().integer("budget_tokens");
    bound.share = spec.selection.arguments().real("budget_share");
  }
  try {
    for (const LayerLog& layer : log.layers) {
      for (const StreamLog& stream : layer.streams) {
        check_stream_values(stream, log, {log.system, "/layer/" + std::to_string(layer.layer)},
                            layer.full_attention ? SelectionBound{} : bound);
      }
    }
  } catch (const UserError& error) {
    throw std::logic_error(std::string("an invariant does not hold: ") + error.what());
  }
}

std::vector<AccessLog> decide(const TraceReader& trace, std::span<const NamedDecideSpec> systems,
                              const DecideOptions& options) {
  check(trace, systems);
  const TraceInfo& info = trace.info();
  const std::int64_t steps = options.max_steps > 0
                                 ? std::min(options.max_steps, info.decode_steps())
                                 : info.decode_steps();

  const std::vector<WindowedLayer> replayed =
      options.layers.empty() ? recorded_layers(info) : options.layers;
  const LayerRatios ratios = all_layer_ratios(trace, replayed, systems, options.threads);
  const TraceTokenFeatures features(trace);
  std::vector<std::vector<DecidedLayer>> layers(replayed.size());
  const Threads threads = share_out(options.threads, std::ssize(systems), std::ssize(layers));
  parallel_for(std::ssize(layers), static_cast<int>(threads.layers), [&](std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    layers[at] =
        decide_layer(trace, replayed, at, steps, systems, ratios, features, options, threads.each);
  });
  trace.check_unchanged();

  std::vector<AccessLog> logs;
  for (std::size_t i = 0; i < systems.size(); ++i) {
    AccessLog log;
    log.trace_hash = options.trace_hash.empty() ? trace.content_hash() : options.trace_hash;
    log.system = systems[i].name;
    log.decide_config = systems[i].spec.resolved();
    log.full_attention_layers = systems[i].spec.full_attention_layers();
    log.query_heads = info.query_heads;
    log.kv_heads = info.kv_heads;
    log.head_dim = info.head_dim;
    log.prompt_tokens = info.prompt_tokens;
    log.steps = steps;
    log.turns = turns_of(info, steps);
    for (std::vector<DecidedLayer>& layer : layers) {
      log.formats = std::move(layer[i].formats);
      if (!layer[i].log.full_attention) log.bound = layer[i].bound;
      log.layers.push_back(std::move(layer[i].log));
    }
    logs.push_back(std::move(log));
  }
  return logs;
}

}  // namespace kvreplay
