#include <algorithm>

#include "policies/decide/scoring/support/aggregate.hpp"

namespace kvreplay {
namespace {

/// A group's score is the position of its latest member, which needs no representative.
class Recency final : public Scoring {
 public:
  explicit Recency(const StreamShape& shape)
      : query_heads_(shape.query_heads()), aggregate_(HeadRule::kMax, shape) {}

  void notify_event(const GroupEvent&, const Groups&, const Entries&) override {}

  [[nodiscard]] Scores score(QueryRows, const Groups& groups, const Entries&) override {
    const std::span<float> scores = aggregate_.scores(groups.count());
    for (GroupId group = 0; group < groups.count(); ++group) {
      const std::vector<Token>& members = groups.members(group);
      const Token latest = members.empty() ? 0 : *std::max_element(members.begin(), members.end());
      for (std::int64_t head = 0; head < query_heads_; ++head) {
        scores[static_cast<std::size_t>(head * groups.count() + group)] =
            static_cast<float>(latest);
      }
    }
    return aggregate_.of_groups(groups);
  }

  [[nodiscard]] ScoreCost cost() const override { return {}; }

 private:
  std::int64_t query_heads_;
  Aggregate aggregate_;
};

const Registered<Scoring> kRecency({
    .name = "recency",
    .help = "the latest groups, whatever the query",
    .source = "ours: the baseline that needs no index; StreamingLLM's window without eviction",
    .parameters = {},
    .make =
        [](const Arguments&, const Scoring::Context& context) {
          return std::make_unique<Recency>(context.shape);
        },
});

}  // namespace
}  // namespace kvreplay
