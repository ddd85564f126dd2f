#include <numeric>

#include "policies/decide/grouping/grouping.hpp"

namespace kvreplay {
namespace {

/// One group that keeps growing.
class Whole final : public Grouping {
 public:
  void add_prompt(const Entries&, Token begin, Token end, const Groups& groups,
                  EventSink& events) override {
    std::vector<Token> tokens(static_cast<std::size_t>(end - begin));
    std::iota(tokens.begin(), tokens.end(), begin);
    if (!tokens.empty()) join(tokens, groups, events);
  }

  void add_token(const Entries&, Token token, std::span<const GroupId>, const Groups& groups,
                 EventSink& events) override {
    join({&token, 1}, groups, events);
  }

 private:
  static void join(std::span<const Token> tokens, const Groups& groups, EventSink& events) {
    const EventKind kind = groups.count() == 0 ? EventKind::kCreated : EventKind::kAppended;
    events.on_event({kind, 0, kNoGroup, tokens});
  }
};

const Registered<Grouping> kWhole({
    .name = "whole",
    .help = "one group: all entries of the stream travel together",
    .source = "FlexGen (Sheng et al., 2023), section 4: a layer's cache is loaded whole",
    .parameters = {},
    .make = [](const Arguments&, const Grouping::Context&) { return std::make_unique<Whole>(); },
});

}  // namespace
}  // namespace kvreplay
