#include "sim/models/closed_loop.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include "base/progress.hpp"
#include "policies/decide/layer_ratios.hpp"
#include "policies/decide/precision/support/token_features.hpp"
#include "policies/decide/prompt_attention.hpp"
#include "policies/kernels/kernels.hpp"
#include "sim/models/full_attention.hpp"
#include "sim/models/half_rows.hpp"
#include "sim/models/layer_shape.hpp"
#include "sim/models/next_token.hpp"
#include "sim/models/record.hpp"
#include "sim/models/transformer.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kClosedLoopLogitRows = 64;

// Units of progress.
constexpr std::int64_t kPromptTokenWork = 1;
constexpr std::int64_t kStepWork = 2;

/// Progress of one system's policy at one layer.
std::int64_t add_prompt_work(const ClosedLoopOptions& options) {
  return std::max<std::int64_t>(1, options.prompt_tokens / 256);
}

void advance(const ClosedLoopOptions& options, std::int64_t work) {
  if (options.progress != nullptr) options.progress->advance(work);
}

/// The prompt's vectors at one layer.
struct PromptLayer {
  HalfRows keys;
  HalfRows values;
  HalfRows window;  ///< queries of the last positions
};

/// Full attention over the prompt. Keeps the vectors that policies are given.
class PromptAttention final : public Attention {
 public:
  PromptAttention(const Architecture& a, std::int64_t prompt, std::int64_t window,
                  FullAttention& full)
      : architecture_(a), prompt_(prompt), window_(window), full_(full) {
    for (std::int64_t i = 0; i < a.layers; ++i) {
      layers_.push_back({HalfRows(a.kv_heads, prompt, a.head_dim),
                         HalfRows(a.kv_heads, prompt, a.head_dim),
                         HalfRows(a.query_heads, window, a.head_dim)});
    }
  }

  void attend(const LayerBatch& batch, float* outputs) override {
    PromptLayer& layer = layers_[static_cast<std::size_t>(batch.layer)];
    for (std::int64_t r = 0; r < batch.rows; ++r) {
      const std::int64_t position = batch.positions[static_cast<std::size_t>(r)];
      layer.keys.put(position, batch.keys + r * architecture_.kv_size());
      layer.values.put(position, batch.values + r * architecture_.kv_size());
      if (const std::int64_t row = position - (prompt_ - window_); row >= 0) {
        layer.window.put(row, batch.queries + r * architecture_.query_size());
      }
    }
    full_.attend(batch, outputs);
  }

  [[nodiscard]] const PromptLayer& layer(std::int64_t index) const {
    return layers_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] Entries entries(std::int64_t index) const {
    return {layer(index).keys.first(prompt_), layer(index).values.first(prompt_)};
  }
  [[nodiscard]] QueryWindow window(std::int64_t index) const {
    return {layer(index).window.first(window_), prompt_ - window_};
  }

 private:
  const Architecture& architecture_;
  std::int64_t prompt_;
  std::int64_t window_;
  FullAttention& full_;
  std::vector<PromptLayer> layers_;
};

class LiveFeatures final : public TokenFeatureSource {
 public:
  explicit LiveFeatures(TokenFeatures prompt) : features_(std::move(prompt)) {}
  [[nodiscard]] const TokenFeatures& features() const override { return features_; }
  void add(const std::array<double, TokenFeatures::kCount>& row) { features_.rows.push_back(row); }

 private:
  TokenFeatures features_;
};

/// What all systems share once the prompt has run.
struct Prompt {
  const ClosedLoopOptions& options;
  const Architecture& architecture;
  PromptAttention attention;
  TokenFeatures features;
  std::vector<double> rarity;  ///< of all tokens

  [[nodiscard]] std::int64_t max_tokens() const { return options.prompt_tokens + options.steps; }
  [[nodiscard]] LayerShape shape(std::int64_t layer) const {
    return layer_shape(architecture, layer, options.prompt_tokens, max_tokens());
  }
};

/// One system's sequence: one policy per layer, and the entries that its own past produced.
class Branch {
 public:
  Branch(const NamedDecideSpec& system, const Prompt& prompt, WorkerPool& pool)
      : system_(system), prompt_(prompt), features_(prompt.features) {
    const std::int64_t layers = prompt.architecture.layers;
    std::vector<double> scores(static_cast<std::size_t>(layers));
    pool.run(layers, [&](std::int64_t i) {
      const LayerShape shape = prompt_.shape(i);
      if (!compares_layers(system.spec, shape)) return;
      scores[static_cast<std::size_t>(i)] = layer_score(
          system.spec, shape, prompt_.attention.entries(i), prompt_.attention.window(i));
    });
    const std::vector<double> ratios = layer_ratios(scores);
    for (std::int64_t i = 0; i < layers; ++i) {
      const PromptLayer& layer = prompt.attention.layer(i);
      keys_.push_back(layer.keys.with_capacity(prompt.max_tokens()));
      values_.push_back(layer.values.with_capacity(prompt.max_tokens()));
      policies_.emplace_back(system.spec, prompt.shape(i),
                             PolicyOptions{.adapters = prompt.options.adapters,
                                           .features = &features_,
                                           .seed = prompt.options.seed,
                                           .layer_ratio = ratios[static_cast<std::size_t>(i)]});
    }
    pool.run(layers, [&](std::int64_t i) {
      policies_[static_cast<std::size_t>(i)].add_prompt(entries(i, prompt.options.prompt_tokens),
                                                        prompt.attention.window(i));
      advance(prompt.options, add_prompt_work(prompt.options));
    });
  }

  [[nodiscard]] const NamedDecideSpec& system() const { return system_; }

  /// Vectors of one position at one layer, laid out as in LayerBatch.
  void attend(std::int64_t layer, std::int64_t position, const float* key, const float* value,
              const float* query, const float* ahead, float* output) {
    const Architecture& a = prompt_.architecture;
    const auto at = static_cast<std::size_t>(layer);
    const auto size = static_cast<std::size_t>(a.query_size());
    keys_[at].put(position, key);
    values_[at].put(position, value);
    const std::span<const HeadAttention> heads =
        policies_[at].attend(entries(layer, position + 1), {query, size},
                             ahead == nullptr ? QueryRows{} : QueryRows{ahead, size});
    double variance = 0;
    for (const HeadAttention& head : heads) {
      output = std::copy(head.output.begin(), head.output.end(), output);
      if (layer == a.layers - 1) variance += row_variance(head.weights);
    }
    if (layer == a.layers - 1) variance_ = variance / static_cast<double>(a.query_heads);
  }

  /// Takes the model's prediction after the position. Policies may know it when they take the
  /// token.
  void end_step(std::int64_t position, const NextToken& next) {
    features_.add({next.entropy, prompt_.rarity[static_cast<std::size_t>(position)], variance_,
                   next.top_probability});
  }
  void add_token(std::int64_t layer, std::int64_t position) {
    policies_[static_cast<std::size_t>(layer)].add_token(entries(layer, position + 1));
  }

  /// Fills the policies' part of the run's results. Ends the branch.
  void finish(ClosedLoopRun& run) && {
    const std::vector<EntryFormat> formats = policies_.front().formats();
    double attended = 0;
    double rows = 0;
    double bits = 0;
    double kept = 0;
    for (LayerPolicy& policy : policies_) {
      const LayerLog log = std::move(policy).finish();
      for (const StreamLog& stream : log.streams) {
        attended =
            std::accumulate(stream.attended_count.begin(), stream.attended_count.end(), attended);
        rows += static_cast<double>(stream.attended_count.size());
        add_stored_bits(stream, formats, bits, kept);
      }
    }
    run.attended_tokens = attended / rows;
    run.stored_bits = bits / kept;
  }

 private:
  [[nodiscard]] Entries entries(std::int64_t layer, std::int64_t tokens) const {
    const auto at = static_cast<std::size_t>(layer);
    return {keys_[at].first(tokens), values_[at].first(tokens)};
  }

  /// Adds the bits per element of each token that the stream still holds, and the number of such
  /// tokens.
  void add_stored_bits(const StreamLog& log, std::span<const EntryFormat> formats, double& bits,
                       double& kept) const {
    constexpr std::int32_t kGone = -1;
    std::vector<std::int32_t> format(static_cast<std::size_t>(prompt_.max_tokens()), 0);
    for (std::int64_t segment = 0; segment < std::ssize(log.event_begin) - 1; ++segment) {
      log.for_events(segment, [&](const GroupEvent& event) {
        const bool evicted = event.kind == EventKind::kEvicted;
        if (!evicted && event.kind != EventKind::kReencoded) return;
        for (const Token token : event.tokens) {
          format[static_cast<std::size_t>(token)] = evicted ? kGone : event.other;
        }
      });
    }
    const double elements = 2 * static_cast<double>(prompt_.architecture.head_dim);
    for (const std::int32_t number : format) {
      if (number == kGone) continue;
      const EntryFormat& stored = formats[static_cast<std::size_t>(number)];
      bits += stored.bits_per_element + stored.overhead_bits_per_head / elements;
      kept += 1;
    }
  }

  const NamedDecideSpec& system_;
  const Prompt& prompt_;
  LiveFeatures features_;
  double variance_ = 0;           // of the step's attention in the last layer
  std::vector<HalfRows> keys_;    // by layer
  std::vector<HalfRows> values_;  // by layer
  std::vector<LayerPolicy> policies_;
};

/// Row 0 uses full attention. Row b + 1 attends as branch b does.
class BranchAttention final : public Attention {
 public:
  BranchAttention(const Architecture& architecture, FullAttention& full,
                  std::span<const std::unique_ptr<Branch>> branches, WorkerPool& pool)
      : architecture_(architecture), full_(full), branches_(branches), pool_(pool) {
    ahead_ = std::any_of(branches.begin(), branches.end(), [](const auto& branch) {
      return branch->system().spec.stream.text("query") == "look_ahead";
    });
  }

  void attend(const LayerBatch& batch, float* outputs) override {
    assert(batch.rows == std::ssize(branches_) + 1);
    LayerBatch exact = batch;
    exact.rows = 1;
    exact.positions = batch.positions.first(1);
    full_.attend(exact, outputs);
    pool_.run(std::ssize(branches_), [&](std::int64_t b) {
      const std::int64_t query = (b + 1) * architecture_.query_size();
      const std::int64_t entry = (b + 1) * architecture_.kv_size();
      branches_[static_cast<std::size_t>(b)]->attend(
          batch.layer, batch.positions.front(), batch.keys + entry, batch.values + entry,
          batch.queries + query, ahead_ ? batch.queries_ahead + query : nullptr, outputs + query);
    });
  }
  [[nodiscard]] bool wants_queries_ahead() const override { return ahead_; }

 private:
  const Architecture& architecture_;
  FullAttention& full_;
  std::span<const std::unique_ptr<Branch>> branches_;
  WorkerPool& pool_;
  bool ahead_;
};

/// Prefills, and fills the features of the prompt's tokens.
void run_prompt(Transformer& transformer, Prompt& prompt) {
  const Architecture& a = prompt.architecture;
  const ClosedLoopOptions& options = prompt.options;
  std::vector<std::int64_t> positions(static_cast<std::size_t>(options.prompt_tokens));
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<NextToken> next(positions.size());
  for (std::int64_t begin = 0; begin < options.prompt_tokens; begin += options.chunk_tokens) {
    const std::int64_t count = std::min(options.chunk_tokens, options.prompt_tokens - begin);
    const std::span<const float> hidden = transformer.run(
        std::span(options.ids)
            .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        std::span(positions).subspan(static_cast<std::size_t>(begin),
                                     static_cast<std::size_t>(count)),
        prompt.attention);
    for (std::int64_t first = 0; first < count; first += kClosedLoopLogitRows) {
      const std::int64_t rows = std::min(kClosedLoopLogitRows, count - first);
      const std::span<const float> logits =
          transformer.logits(hidden.subspan(static_cast<std::size_t>(first * a.hidden_size),
                                            static_cast<std::size_t>(rows * a.hidden_size)));
      transformer.pool().run(rows, [&](std::int64_t r) {
        thread_local std::vector<float> scratch;
        next[static_cast<std::size_t>(begin + first + r)] =
            next_token(logits.subspan(static_cast<std::size_t>(r * a.logit_stride()),
                                      static_cast<std::size_t>(a.vocabulary)),
                       scratch);
      });
    }
    advance(options, kPromptTokenWork * count);
  }

  prompt.rarity = token_rarity(options.ids);
  // As in a trace's features, rows before the window get the mean of the window's.
  const LayerShape last = prompt.shape(a.layers - 1);
  const StreamShape whole{.layer = last.layer,
                          .first_kv_head = 0,
                          .kv_heads = last.kv_heads,
                          .queries_per_kv_head = last.query_heads / last.kv_heads,
                          .head_dim = last.head_dim,
                          .softmax_scale = last.softmax_scale};
  const QueryWindow window = prompt.attention.window(a.layers - 1);
  std::vector<double> variance(static_cast<std::size_t>(options.prompt_tokens));
  double sum = 0;
  for_prompt_attention(
      whole, last.sliding_window, prompt.attention.entries(a.layers - 1), window,
      [&](std::int64_t, Token position, std::span<const Token>, std::span<const float> weights) {
        const double part = row_variance(weights) / static_cast<double>(a.query_heads);
        variance[static_cast<std::size_t>(position)] += part;
        sum += part;
      });
  if (window.queries.tokens > 0) {
    std::fill_n(variance.begin(), window.start, sum / static_cast<double>(window.queries.tokens));
  }
  for (std::size_t t = 0; t < next.size(); ++t) {
    prompt.features.rows.push_back(
        {next[t].entropy, prompt.rarity[t], variance[t], next[t].top_probability});
  }
}

/// KL(p || q) of the distributions given by two rows of logits. `p` holds the probabilities of the
/// first.
double kl_divergence(std::span<const float> p, std::span<const float> full, float full_log_sum,
                     std::span<const float> other, float other_log_sum) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    sum +=
        static_cast<double>(p[i]) * (static_cast<double>(full[i]) - static_cast<double>(other[i]));
  }
  return std::max(0.0,
                  sum - static_cast<double>(full_log_sum) + static_cast<double>(other_log_sum));
}

/// The perplexity and attention of full attention, means over steps and layers.
double attended_tokens(const Architecture& a, const ClosedLoopOptions& options) {
  std::int64_t sum = 0;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const std::int64_t position = options.prompt_tokens + step;
    for (std::int64_t i = 0; i < a.layers; ++i) sum += position + 1 - a.first_seen(i, position);
  }
  return static_cast<double>(sum) / static_cast<double>(options.steps * a.layers);
}

/// Runs the branches in lockstep through all steps. runs[0] is full attention.
void run_steps(Transformer& transformer, FullAttention& full, const ClosedLoopOptions& options,
               std::span<const std::unique_ptr<Branch>> branches, std::span<ClosedLoopRun> runs) {
  const Architecture& a = transformer.model().architecture();
  WorkerPool& pool = transformer.pool();
  BranchAttention attention(a, full, branches, pool);
  const std::int64_t rows = std::ssize(branches) + 1;
  std::vector<float> probabilities;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const std::int64_t position = options.prompt_tokens + step;
    const std::int32_t id = options.ids[static_cast<std::size_t>(position)];
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(rows), id);
    const std::vector<std::int64_t> positions(static_cast<std::size_t>(rows), position);
    const std::span<const float> all =
        transformer.logits(transformer.run(ids, positions, attention));
    const auto logits = [&](std::int64_t r) {
      return all.subspan(static_cast<std::size_t>(r * a.logit_stride()),
                         static_cast<std::size_t>(a.vocabulary));
    };
    const NextToken exact = next_token(logits(0), probabilities);
    pool.run(rows, [&](std::int64_t r) {
      thread_local std::vector<float> scratch;
      const NextToken next = next_token(logits(r), scratch);
      ClosedLoopRun& run = runs[static_cast<std::size_t>(r)];
      const bool has_next = step + 1 < options.steps;
      run.log_probability.push_back(
          has_next ? logits(r)[static_cast<std::size_t>(
                         options.ids[static_cast<std::size_t>(position + 1)])] -
                         next.log_sum
                   : 0);
      run.kl_divergence.push_back(static_cast<float>(
          kl_divergence(probabilities, logits(0), exact.log_sum, logits(r), next.log_sum)));
      run.likeliest.push_back(likeliest(logits(r)));
      if (r > 0) branches[static_cast<std::size_t>(r - 1)]->end_step(position, next);
    });
    pool.run(std::ssize(branches) * a.layers, [&](std::int64_t i) {
      branches[static_cast<std::size_t>(i / a.layers)]->add_token(i % a.layers, position);
    });
    advance(options, kStepWork * std::ssize(branches));
  }
}

}  // namespace

double ClosedLoopRun::perplexity() const {
  const double sum = std::accumulate(log_probability.begin(), log_probability.end() - 1, 0.0);
  return std::exp(-sum / static_cast<double>(log_probability.size() - 1));
}

double ClosedLoopRun::mean_kl() const {
  return std::accumulate(kl_divergence.begin(), kl_divergence.end(), 0.0) /
         static_cast<double>(kl_divergence.size());
}

double ClosedLoopRun::agreement(const ClosedLoopRun& full) const {
  std::int64_t same = 0;
  for (std::size_t i = 0; i < likeliest.size(); ++i) {
    same += static_cast<std::int64_t>(likeliest[i] == full.likeliest[i]);
  }
  return static_cast<double>(same) / static_cast<double>(likeliest.size());
}

std::int64_t closed_loop_work(const Architecture& architecture, std::int64_t systems,
                              const ClosedLoopOptions& options) {
  return kPromptTokenWork * options.prompt_tokens +
         systems * (architecture.layers * add_prompt_work(options) + kStepWork * options.steps);
}

ClosedLoopResult run_closed_loop(const Model& model, std::span<const NamedDecideSpec> systems,
                                 const ClosedLoopOptions& options) {
  check_text(model, options.ids, options.prompt_tokens, options.steps,
             options.prompt_tokens + options.steps);
  const Architecture& a = model.architecture();
  const std::int64_t tokens = options.prompt_tokens + options.steps;
  WorkerPool pool(options.threads);
  Transformer transformer(model, tokens, pool);
  FullAttention full(a, tokens, pool);
  const std::int64_t window = std::min(options.query_window, options.prompt_tokens);
  Prompt prompt{.options = options,
                .architecture = a,
                .attention = PromptAttention(a, options.prompt_tokens, window, full),
                .features = {},
                .rarity = {}};
  run_prompt(transformer, prompt);

  ClosedLoopResult result;
  for (std::size_t first = 0; first < std::max<std::size_t>(systems.size(), 1);) {
    const std::size_t count =
        std::min(static_cast<std::size_t>(options.systems_at_once), systems.size() - first);
    std::vector<std::unique_ptr<Branch>> branches;
    std::vector<ClosedLoopRun> runs(count + 1);
    runs.front().system = "full";
    for (std::size_t i = 0; i < count; ++i) {
      branches.push_back(std::make_unique<Branch>(systems[first + i], prompt, pool));
      runs[i + 1].system = systems[first + i].name;
    }
    run_steps(transformer, full, options, branches, runs);
    runs.front().attended_tokens = attended_tokens(a, options);
    runs.front().stored_bits = 32;
    for (std::size_t i = 0; i < count; ++i) std::move(*branches[i]).finish(runs[i + 1]);
    result.full = std::move(runs.front());
    result.systems.insert(result.systems.end(), std::make_move_iterator(runs.begin() + 1),
                          std::make_move_iterator(runs.end()));
    first += std::max<std::size_t>(count, 1);
  }
  model.check_unchanged();
  return result;
}

}  // namespace kvreplay
