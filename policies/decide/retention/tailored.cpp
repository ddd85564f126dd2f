#include <algorithm>
#include <cmath>

#include "policies/decide/retention/retention.hpp"
#include "policies/decide/retention/support/attention_statistics.hpp"
#include "policies/decide/retention/support/live_tokens.hpp"
#include "policies/decide/retention/support/pooling.hpp"
#include "policies/kernels/elementary.hpp"

namespace kvreplay {
namespace {

enum class Mode { kTailored, kOriginal, kQuantised, kWindow };

struct TailoredOptions {
  Mode mode = Mode::kTailored;
  std::int64_t budget = 0;
  std::int64_t window = 0;
  double keep_share = 0;
  double entropy_root = 0;
  double variance_root = 0;
  double kurtosis_root = 0;
  double variance_weight = 0;
  std::int64_t kernel = 0;
  bool subtract_window_twice = false;
};

/// ARKV: whenever a stream holds more than its budget, its tokens are ranked by the newest
/// attention. The best stay in half precision, the next are stored in FP8, and the rest are
/// evicted. How many stay in half precision depends on the ratio of the layer's score to the
/// largest layer score.
class Tailored final : public Retention {
 public:
  Tailored(const TailoredOptions& options, const Context& context)
      : options_(options),
        prompt_tokens_(context.prompt_tokens),
        query_heads_(context.shape.query_heads()),
        window_(context.shape.query_heads(), std::min(options.window, context.prompt_tokens),
                context.prompt_tokens, options.window),
        original_budget_(original_budget(context.layer_ratio)) {}

  [[nodiscard]] bool needs_attention() const override { return options_.mode != Mode::kWindow; }
  [[nodiscard]] std::int64_t most_tokens() const override { return options_.budget; }
  [[nodiscard]] bool compares_layers() const override { return options_.mode == Mode::kTailored; }
  [[nodiscard]] bool reencodes() const override {
    return options_.mode == Mode::kTailored || options_.mode == Mode::kQuantised;
  }

  [[nodiscard]] double layer_score() const override {
    const AttentionStatistics statistics = window_.statistics();
    if (statistics.entropy <= 0 || statistics.variance <= 0 || statistics.kurtosis <= 0) return 0;
    return kernels::exp(kernels::ln(statistics.entropy) / options_.entropy_root +
                        kernels::ln(statistics.variance) / options_.variance_root +
                        kernels::ln(statistics.kurtosis) / options_.kurtosis_root);
  }

  void notify_attention(std::int64_t query_head, Token position, std::span<const Token> tokens,
                        std::span<const float> weights) override {
    if (position < prompt_tokens_) {
      window_.take(query_head, position, tokens, weights);
      return;
    }
    if (live_.count() < options_.budget) return;  // the step's own token does not exceed the budget
    if (query_head == 0) newest_.assign(static_cast<std::size_t>(position) + 1, 0.0f);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      newest_[static_cast<std::size_t>(tokens[i])] += weights[i] / static_cast<float>(query_heads_);
    }
  }

  void after_prompt(const Groups& groups, EventSink& events) override {
    live_.start(prompt_tokens_, groups);
    quantised_.assign(static_cast<std::size_t>(prompt_tokens_), false);
    if (live_.count() <= options_.budget) return;
    if (options_.mode == Mode::kWindow) {
      keep_window(groups, events);
      return;
    }
    std::vector<float> scores = window_.heavy_hitter_scores(options_.variance_weight);
    scores = pooled(live_.of_candidates(scores, prompt_tokens_), options_.kernel, Pool::kMean);
    live_.keep_only(best_and_rest(scores, options_.budget - options_.window, live_.count()), groups,
                    events);
    if (options_.mode == Mode::kQuantised) {
      const auto first = live_.tokens().begin();
      encode({first, first + options_.budget - options_.window}, {}, events);
    }
  }

  void after_step(Token token, const Groups& groups, EventSink& events) override {
    live_.append(token, groups);
    quantised_.resize(static_cast<std::size_t>(token) + 1, false);
    if (live_.count() <= options_.budget) return;
    if (options_.mode == Mode::kWindow) {
      keep_window(groups, events);
    } else {
      tailor(groups, events);
    }
  }

 private:
  [[nodiscard]] std::int64_t original_budget(double layer_ratio) const {
    const std::int64_t room = options_.budget - options_.window;
    const auto share =
        static_cast<std::int64_t>(std::nearbyint(layer_ratio * static_cast<double>(room)));
    return std::clamp<std::int64_t>(
        share, 0, std::clamp<std::int64_t>(prompt_tokens_ - options_.window, 0, room));
  }

  /// How many of the `keep` tokens that stay beside the window stay in half precision.
  [[nodiscard]] std::int64_t originals(std::int64_t keep) const {
    if (options_.mode == Mode::kOriginal) return keep;
    if (options_.mode == Mode::kQuantised) return 0;
    const std::int64_t again = options_.subtract_window_twice ? options_.window : 0;
    return std::clamp<std::int64_t>(original_budget_ - again, 0, keep);
  }

  void tailor(const Groups& groups, EventSink& events) {
    const std::int64_t count = live_.count();
    const std::int64_t evictable = count - options_.window;
    const auto keep =
        static_cast<std::int64_t>(options_.keep_share * static_cast<double>(evictable));
    std::vector<float> scores;
    for (std::int64_t i = 0; i < evictable; ++i) {
      scores.push_back(
          newest_[static_cast<std::size_t>(live_.tokens()[static_cast<std::size_t>(i)])]);
    }
    scores = pooled(scores, options_.kernel, Pool::kMean);

    std::vector<Token> original;
    for (const std::int32_t i : best_and_rest(scores, originals(keep), count)) {
      original.push_back(live_.tokens()[static_cast<std::size_t>(i)]);
    }
    live_.keep_only(best_and_rest(scores, keep, count), groups, events);
    std::vector<Token> quantised;
    std::set_difference(live_.tokens().begin(), live_.tokens().end(), original.begin(),
                        original.end(), std::back_inserter(quantised));
    encode(quantised, original, events);
  }

  void keep_window(const Groups& groups, EventSink& events) {
    live_.keep_only(
        best_and_rest(std::vector<float>(static_cast<std::size_t>(live_.count() - options_.window)),
                      0, live_.count()),
        groups, events);
  }

  /// Emits the format changes: formats 1 (FP8) and 0 (half precision).
  void encode(std::vector<Token> quantised, std::vector<Token> original, EventSink& events) {
    const auto flip = [&](std::vector<Token>& tokens, bool to) {
      std::erase_if(tokens,
                    [&](Token token) { return quantised_[static_cast<std::size_t>(token)] == to; });
      for (const Token token : tokens) quantised_[static_cast<std::size_t>(token)] = to;
      if (!tokens.empty()) {
        events.on_event({EventKind::kReencoded, kNoGroup, to ? 1 : 0, tokens});
      }
    };
    flip(quantised, true);
    flip(original, false);
  }

  TailoredOptions options_;
  std::int64_t prompt_tokens_;
  std::int64_t query_heads_;
  AttentionWindow window_;
  std::int64_t original_budget_;
  LiveTokens live_;
  std::vector<bool> quantised_;  // by token
  std::vector<float> newest_;    // the step's attention by token, mean over query heads
};

std::unique_ptr<Retention> make_tailored(const Arguments& arguments,
                                         const Retention::Context& context) {
  const std::string& mode = arguments.text("mode");
  TailoredOptions options;
  options.mode = mode == "tailored"    ? Mode::kTailored
                 : mode == "original"  ? Mode::kOriginal
                 : mode == "quantised" ? Mode::kQuantised
                                       : Mode::kWindow;
  options.budget = arguments.integer("budget_tokens");
  options.window = arguments.integer("window_tokens");
  options.keep_share = arguments.real("keep_share");
  options.entropy_root = arguments.real("entropy_root");
  options.variance_root = arguments.real("variance_root");
  options.kurtosis_root = arguments.real("kurtosis_root");
  options.variance_weight = arguments.real("variance_weight");
  options.kernel = arguments.integer("pool_tokens");
  options.subtract_window_twice = arguments.flag("subtract_window_twice");
  check_window_and_pool(arguments, "budget_tokens");
  return std::make_unique<Tailored>(options, context);
}

const Registered<Retention> kTailored({
    .name = "tailored",
    .help =
        "above the budget, the best tokens stay as they are, the next go to FP8, the rest leave",
    .source = "ARKV, Eq. 2-10, and its released code (hyper-parameters, modes, pooling)",
    .parameters =
        {choice_parameter("mode", {"tailored", "original", "quantised", "window"}, "tailored",
                          "ARKV, or its baselines: all kept tokens in fp16, in FP8, or the window "
                          "alone"),
         integer_parameter("budget_tokens", "tokens", 1024, {2, 1e9},
                           "tokens that a KV head may hold; 512, 1024 and 2048 in the paper"),
         integer_parameter("window_tokens", "tokens", 32, {1, 1e9},
                           "last tokens, which stay in fp16"),
         real_parameter("keep_share", "", 0.75, {0, 1},
                        "share of the tokens before the window that a tailoring keeps"),
         real_parameter("entropy_root", "", 7.774380648611771, {1e-3, 1e3},
                        "tau1: root taken of the entropy in the layer score"),
         real_parameter("variance_root", "", 5.407015096778621, {1e-3, 1e3},
                        "tau2: root taken of the variance"),
         real_parameter("kurtosis_root", "", 5.527702582901318, {1e-3, 1e3},
                        "tau3: root taken of the kurtosis"),
         real_parameter("variance_weight", "", 263.8108280337562, {0, 1e9},
                        "gamma: weight of the variance beside the mean in a token's score"),
         integer_parameter("pool_tokens", "tokens", 5, {1, 1001},
                           "neighbours that a token's score is averaged over"),
         flag_parameter("subtract_window_twice", false,
                        "subtract the window from the fp16 budget again at each tailoring, as the "
                        "released code does")},
    .make = make_tailored,
});

}  // namespace
}  // namespace kvreplay
