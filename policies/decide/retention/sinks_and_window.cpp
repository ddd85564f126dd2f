#include <algorithm>
#include <numeric>

#include "policies/decide/retention/retention.hpp"
#include "policies/decide/retention/support/live_tokens.hpp"

namespace kvreplay {
namespace {

class SinksAndWindow final : public Retention {
 public:
  SinksAndWindow(std::int64_t sinks, std::int64_t window, const Context& context)
      : sinks_(sinks), window_(window), prompt_tokens_(context.prompt_tokens) {}

  [[nodiscard]] std::int64_t most_tokens() const override { return sinks_ + window_; }
  void after_prompt(const Groups& groups, EventSink& events) override {
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
    if (count <= sinks_ + window_) return;
    std::vector<std::int32_t> kept(static_cast<std::size_t>(sinks_ + window_));
    std::iota(kept.begin(), kept.begin() + sinks_, 0);
    std::iota(kept.begin() + sinks_, kept.end(), static_cast<std::int32_t>(count - window_));
    live_.keep_only(kept, groups, events);
  }

  std::int64_t sinks_;
  std::int64_t window_;
  std::int64_t prompt_tokens_;
  LiveTokens live_;
};

const Registered<Retention> kSinksAndWindow({
    .name = "sinks_and_window",
    .help = "keeps the first and the last tokens",
    .source = "StreamingLLM (Xiao et al., 2024), section 3.2 and table 1 (4 + 1020)",
    .parameters = {integer_parameter("sink_tokens", "tokens", 4, {0, 1e9}, "first tokens kept"),
                   integer_parameter("window_tokens", "tokens", 1020, {1, 1e9},
                                     "last tokens kept")},
    .make =
        [](const Arguments& arguments, const Retention::Context& context) {
          return std::make_unique<SinksAndWindow>(arguments.integer("sink_tokens"),
                                                  arguments.integer("window_tokens"), context);
        },
});

}  // namespace
}  // namespace kvreplay
