#include <algorithm>

#include "policies/decide/retention/retention.hpp"
#include "policies/decide/retention/support/live_tokens.hpp"
#include "policies/decide/retention/support/pooling.hpp"

namespace kvreplay {
namespace {

struct AtPrefillOptions {
  std::int64_t capacity = 0;
  std::int64_t window = 0;
  std::int64_t kernel = 0;
  Pool pool = Pool::kMean;
};

/// Acts once, when the prompt is done: keeps the tokens that the prompt's last queries attend to,
/// and these queries' own tokens.
class AtPrefill final : public Retention {
 public:
  AtPrefill(const AtPrefillOptions& options, const Context& context)
      : options_(options),
        prompt_tokens_(context.prompt_tokens),
        shape_(context.shape),
        sums_(static_cast<std::size_t>(
            std::max<std::int64_t>(context.prompt_tokens - options.window, 0))) {}

  [[nodiscard]] std::int64_t most_tokens() const override { return options_.capacity; }
  [[nodiscard]] bool needs_attention() const override { return true; }
  /// The weights of the window's queries, once more: a prefill that does not keep them computes
  /// them for this.
  [[nodiscard]] PromptWork prompt_work(std::int64_t tokens) const override {
    const std::int64_t keys = tokens * shape_.head_dim;
    return {.flops = 2 * options_.window * shape_.query_heads() * keys,
            .bytes = 2 * shape_.kv_heads * keys,
            .whole_prompt = true};
  }

  void notify_attention(std::int64_t, Token position, std::span<const Token> tokens,
                        std::span<const float> weights) override {
    if (position < prompt_tokens_ - options_.window || position >= prompt_tokens_) return;
    for (std::size_t i = 0; i < tokens.size() && tokens[i] < std::ssize(sums_); ++i) {
      sums_[static_cast<std::size_t>(tokens[i])] += weights[i];
    }
  }

  void after_prompt(const Groups& groups, EventSink& events) override {
    LiveTokens live;
    live.start(prompt_tokens_, groups);
    if (live.count() <= options_.capacity) return;
    const std::span<const float> sums = live.of_candidates(sums_, prompt_tokens_);
    live.keep_only(best_and_rest(pooled(sums, options_.kernel, options_.pool),
                                 options_.capacity - options_.window, live.count()),
                   groups, events);
  }

 private:
  AtPrefillOptions options_;
  std::int64_t prompt_tokens_;
  StreamShape shape_;
  std::vector<float> sums_;  // of attention, by token before the window
};

std::unique_ptr<Retention> make_at_prefill(const Arguments& arguments,
                                           const Retention::Context& context) {
  const AtPrefillOptions options{
      .capacity = arguments.integer("capacity_tokens"),
      .window = arguments.integer("window_tokens"),
      .kernel = arguments.integer("pool_tokens"),
      .pool = arguments.text("pool") == "mean" ? Pool::kMean : Pool::kMaximum};
  check_window_and_pool(arguments, "capacity_tokens");
  return std::make_unique<AtPrefill>(options, context);
}

const Registered<Retention> kAtPrefill({
    .name = "at_prefill",
    .help = "after the prompt, keeps the tokens that its last queries attend to; no later eviction",
    .source =
        "SnapKV (Li et al., 2024), algorithm 1 and its released code. Ours: one choice per KV "
        "head, by the sum over its query heads; the code keeps one per query head",
    .parameters =
        {integer_parameter("capacity_tokens", "tokens", 2048, {2, 1e9},
                           "tokens of the prompt that stay, including the window"),
         integer_parameter("window_tokens", "tokens", 32, {1, 1e9},
                           "the prompt's last queries: they choose, and their tokens stay"),
         integer_parameter("pool_tokens", "tokens", 5, {1, 1001},
                           "neighbours that a score is pooled over: 5, or 7 with the "
                           "maximum for LongBench"),
         choice_parameter("pool", {"mean", "maximum"}, "mean", "how the score is pooled")},
    .make = make_at_prefill,
});

}  // namespace
}  // namespace kvreplay
