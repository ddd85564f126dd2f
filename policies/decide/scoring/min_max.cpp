#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "policies/decide/scoring/support/group_rows.hpp"

namespace kvreplay {
namespace {

/// Bounds of a group's keys in each dimension. The score is the largest q . k that a key within the
/// bounds can have: sum_d max(q_d max_d, q_d min_d).
class MinMax final : public Scoring {
 public:
  MinMax(HeadRule rule, const StreamShape& shape)
      : shape_(shape),
        aggregate_(rule, shape),
        minima_(shape),
        maxima_(shape),
        key_(static_cast<std::size_t>(shape.head_dim)) {}

  void notify_event(const GroupEvent& event, const Groups& groups,
                    const Entries& entries) override {
    minima_.resize(groups.count());
    maxima_.resize(groups.count());
    switch (event.kind) {
      case EventKind::kCreated:
        clear(event.group);
        widen(event.group, event.tokens, entries);
        break;
      case EventKind::kAppended:
        // A group that lost all its members starts with empty bounds.
        if (groups.members(event.group).size() == event.tokens.size()) clear(event.group);
        widen(event.group, event.tokens, entries);
        break;
      case EventKind::kSplit:
        clear(event.other);
        widen(event.other, event.tokens, entries);
        rebuild(event.group, groups, entries);
        break;
      case EventKind::kEvicted:
        if (event.group != kNoGroup) rebuild(event.group, groups, entries);
        break;
      default:
        break;
    }
  }

  [[nodiscard]] Scores score(QueryRows queries, const Groups& groups, const Entries&) override {
    const std::int64_t heads = shape_.queries_per_kv_head;
    const std::int64_t count = groups.count();
    const std::span<float> scores = aggregate_.scores(count);
    for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
      kernels::score_bounds(queries.data() + kv * heads * shape_.head_dim, heads, minima_.head(kv),
                            maxima_.head(kv), count, shape_.head_dim,
                            scores.data() + kv * heads * count, count);
    }
    const std::int64_t elements = groups.live_groups() * shape_.head_dim;
    cost_ = {.held_bytes = 2 * 2 * shape_.kv_heads * elements,
             .read_bytes = 2 * 2 * shape_.kv_heads * elements,
             .flops = 4 * shape_.query_heads() * elements};
    return aggregate_.of_groups(groups);
  }

  [[nodiscard]] ScoreCost cost() const override { return cost_; }
  [[nodiscard]] PromptWork prompt_work(std::int64_t tokens) const override {
    const std::int64_t elements = tokens * shape_.kv_heads * shape_.head_dim;
    return {.flops = 2 * elements, .bytes = 2 * elements};
  }

 private:
  void clear(GroupId group) {
    for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
      std::fill_n(minima_.row(kv, group), shape_.head_dim, std::numeric_limits<float>::max());
      std::fill_n(maxima_.row(kv, group), shape_.head_dim, std::numeric_limits<float>::lowest());
    }
  }

  void widen(GroupId group, std::span<const Token> tokens, const Entries& entries) {
    for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
      float* const minima = minima_.row(kv, group);
      float* const maxima = maxima_.row(kv, group);
      for (const Token token : tokens) {
        kernels::to_float(entries.keys.row(kv, token), key_.data(), shape_.head_dim);
        for (std::size_t i = 0; i < key_.size(); ++i) {
          minima[i] = std::min(minima[i], key_[i]);
          maxima[i] = std::max(maxima[i], key_[i]);
        }
      }
    }
  }

  /// Departing tokens cannot narrow the bounds: they are recomputed from the tokens that stayed.
  void rebuild(GroupId group, const Groups& groups, const Entries& entries) {
    clear(group);
    widen(group, groups.members(group), entries);
  }

  StreamShape shape_;
  Aggregate aggregate_;
  GroupRows minima_;
  GroupRows maxima_;
  std::vector<float> key_;
  ScoreCost cost_;
};

const Registered<Scoring> kMinMax({
    .name = "min_max",
    .help = "largest score that a key within the group's bounds can have",
    .source = "Quest (Tang et al., 2024), Algorithm 1",
    .parameters = {head_rule_parameter("per_query_head")},
    .make =
        [](const Arguments& arguments, const Scoring::Context& context) {
          return std::make_unique<MinMax>(head_rule_of(arguments), context.shape);
        },
});

}  // namespace
}  // namespace kvreplay
