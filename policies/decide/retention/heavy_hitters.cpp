#include <algorithm>

#include "policies/decide/retention/retention.hpp"
#include "policies/decide/retention/support/live_tokens.hpp"
#include "policies/decide/retention/support/pooling.hpp"

namespace kvreplay {
namespace {

/// Keeps the last tokens and those with the most attention so far, summed over queries and never
/// decayed. A stream's score is the mean over its query heads.
class HeavyHitters final : public Retention {
 public:
  HeavyHitters(double heavy_share, double recent_share, const Context& context)
      : heavy_(static_cast<std::int64_t>(heavy_share * static_cast<double>(context.prompt_tokens))),
        recent_(
            static_cast<std::int64_t>(recent_share * static_cast<double>(context.prompt_tokens))),
        prompt_tokens_(context.prompt_tokens),
        query_heads_(static_cast<double>(context.shape.query_heads())) {}

  [[nodiscard]] bool needs_attention() const override { return true; }
  /// One addition per query of the prompt and token that it attends to.
  [[nodiscard]] PromptWork prompt_work(std::int64_t tokens) const override {
    return {.square_flops = static_cast<std::int64_t>(query_heads_) * tokens * tokens / 2,
            .whole_prompt = true};
  }
  [[nodiscard]] bool keeps_share() const override { return true; }

  void notify_attention(std::int64_t, Token position, std::span<const Token> tokens,
                        std::span<const float> weights) override {
    if (std::ssize(sums_) <= position) sums_.resize(static_cast<std::size_t>(position) + 1);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      sums_[static_cast<std::size_t>(tokens[i])] += static_cast<double>(weights[i]) / query_heads_;
    }
  }

  void after_prompt(const Groups& groups, EventSink& events) override {
    sums_.resize(std::max(sums_.size(), static_cast<std::size_t>(prompt_tokens_)));
    live_.start(prompt_tokens_, groups);
    trim(groups, events);
  }

  void after_step(Token token, const Groups& groups, EventSink& events) override {
    live_.append(token, groups);
    trim(groups, events);
  }

 private:
  void trim(const Groups& groups, EventSink& events) {
    const std::int64_t count = live_.count();
    if (count <= heavy_ + recent_) return;
    std::vector<float> scores;
    for (std::int64_t i = 0; i < count - recent_; ++i) {
      const Token token = live_.tokens()[static_cast<std::size_t>(i)];
      scores.push_back(static_cast<float>(sums_[static_cast<std::size_t>(token)]));
    }
    live_.keep_only(best_and_rest(scores, heavy_, count), groups, events);
  }

  std::int64_t heavy_;
  std::int64_t recent_;
  std::int64_t prompt_tokens_;
  double query_heads_;
  std::vector<double> sums_;  // by token
  LiveTokens live_;
};

const Registered<Retention> kHeavyHitters({
    .name = "heavy_hitters",
    .help = "keeps the tokens with the most accumulated attention, and the last ones",
    .source =
        "H2O (Zhang et al., 2023), section 4, and its simulated version's budgets. Ours: the "
        "prompt's sums begin at its first recorded query; query heads of a group are averaged",
    .parameters = {real_parameter("heavy_share", "", 0.1, {0, 1},
                                  "heavy tokens, as a share of the prompt's length"),
                   real_parameter("recent_share", "", 0.1, {0, 1},
                                  "last tokens, as a share of the prompt's length")},
    .make =
        [](const Arguments& arguments, const Retention::Context& context) {
          return std::make_unique<HeavyHitters>(arguments.real("heavy_share"),
                                                arguments.real("recent_share"), context);
        },
});

}  // namespace
}  // namespace kvreplay
