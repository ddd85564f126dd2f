#include "policies/decide/grouping/grouping.hpp"

namespace kvreplay {
namespace {

/// Groups of consecutive tokens. Tokens stay in memory until their group is complete; it is then
/// created and takes no further tokens.
class Page final : public Grouping {
 public:
  explicit Page(std::int64_t group_tokens) : group_tokens_(group_tokens) {}

  void add_prompt(const Entries&, Token begin, Token end, const Groups& groups,
                  EventSink& events) override {
    for (Token token = begin; token < end; ++token) {
      waiting_.push_back(token);
      if (complete()) make_group(groups, events);
    }
    if (!waiting_.empty()) {
      events.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, waiting_});
    }
  }

  void add_token(const Entries&, Token token, std::span<const GroupId>, const Groups& groups,
                 EventSink& events) override {
    waiting_.push_back(token);
    if (complete()) {
      make_group(groups, events);
    } else {
      events.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, {&token, 1}});
    }
  }

 private:
  [[nodiscard]] bool complete() const { return std::ssize(waiting_) == group_tokens_; }

  void make_group(const Groups& groups, EventSink& events) {
    groups.erase_evicted(waiting_);
    if (!waiting_.empty()) {
      const GroupId group = groups.count();
      events.on_event({EventKind::kCreated, group, kNoGroup, waiting_});
      events.on_event({EventKind::kSealed, group});
    }
    waiting_.clear();
  }

  std::int64_t group_tokens_;
  std::vector<Token> waiting_;
};

const Registered<Grouping> kPage({
    .name = "page",
    .help = "consecutive tokens, buffered in memory until a group of them is complete",
    .source = "Quest (Tang et al., 2024), section 3; KVSwap, rolling buffer",
    .parameters = {integer_parameter(
        "group_tokens", "tokens", 16, {1, 65536},
        "tokens per group: 16 in Quest; 4 (NVMe) or 8 (eMMC) in KVSwap")},
    .make =
        [](const Arguments& arguments, const Grouping::Context&) {
          return std::make_unique<Page>(arguments.integer("group_tokens"));
        },
});

const Registered<Grouping> kToken({
    .name = "token",
    .help = "each token is a group of its own",
    .source = "token-grain systems: InfiniGen, Loki, H2O, PQCache",
    .parameters = {},
    .make = [](const Arguments&, const Grouping::Context&) { return std::make_unique<Page>(1); },
});

}  // namespace
}  // namespace kvreplay
