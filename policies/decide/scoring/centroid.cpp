#include <span>
#include <vector>

#include "policies/decide/scoring/support/group_rows.hpp"

namespace kvreplay {
namespace {

/// The representative is the plain mean of a group's keys; the score is q . mean. Sums are kept in
/// double precision, so that an entry that joins or leaves costs O(head_dim) and leaves no drift.
class Centroid final : public Scoring {
 public:
  Centroid(HeadRule rule, const StreamShape& shape)
      : shape_(shape),
        aggregate_(rule, shape),
        means_(shape),
        key_(static_cast<std::size_t>(shape.head_dim)) {}

  void notify_event(const GroupEvent& event, const Groups& groups,
                    const Entries& entries) override {
    means_.resize(groups.count());
    sums_.resize(static_cast<std::size_t>(groups.count() * width()));
    switch (event.kind) {
      case EventKind::kCreated:
      case EventKind::kAppended:
        add(event.tokens, event.group, 1, entries);
        break;
      case EventKind::kSplit:
        add(event.tokens, event.group, -1, entries);
        add(event.tokens, event.other, 1, entries);
        update_mean(event.other, groups);
        break;
      case EventKind::kEvicted:
        if (event.group == kNoGroup) return;
        add(event.tokens, event.group, -1, entries);
        break;
      default:
        return;
    }
    update_mean(event.group, groups);
  }

  [[nodiscard]] Scores score(QueryRows queries, const Groups& groups, const Entries&) override {
    const std::int64_t heads = shape_.queries_per_kv_head;
    const std::int64_t count = groups.count();
    const std::span<float> scores = aggregate_.scores(count);
    for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
      kernels::score(queries.data() + kv * heads * shape_.head_dim, heads, means_.head(kv), count,
                     shape_.head_dim, scores.data() + kv * heads * count, count);
    }
    const std::int64_t elements = groups.live_groups() * shape_.head_dim;
    cost_ = {.held_bytes = 2 * shape_.kv_heads * elements,
             .read_bytes = 2 * shape_.kv_heads * elements,
             .flops = 2 * shape_.query_heads() * elements};
    return aggregate_.of_groups(groups);
  }

  [[nodiscard]] ScoreCost cost() const override { return cost_; }
  [[nodiscard]] PromptWork prompt_work(std::int64_t tokens) const override {
    return {.flops = tokens * width(), .bytes = 2 * tokens * width()};
  }

 private:
  [[nodiscard]] std::int64_t width() const { return shape_.kv_heads * shape_.head_dim; }

  void add(std::span<const Token> tokens, GroupId group, double sign, const Entries& entries) {
    double* const sums = sums_.data() + group * width();
    for (const Token token : tokens) {
      for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
        kernels::to_float(entries.keys.row(kv, token), key_.data(), shape_.head_dim);
        double* sum = sums + kv * shape_.head_dim;
        for (const float element : key_) *sum++ += sign * static_cast<double>(element);
      }
    }
  }

  void update_mean(GroupId group, const Groups& groups) {
    if (!groups.live(group)) return;
    const double share = 1.0 / static_cast<double>(groups.members(group).size());
    const double* sum = sums_.data() + group * width();
    for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
      float* const mean = means_.row(kv, group);
      for (std::int64_t i = 0; i < shape_.head_dim; ++i) {
        mean[i] = static_cast<float>(*sum++ * share);
      }
    }
  }

  StreamShape shape_;
  Aggregate aggregate_;
  GroupRows means_;
  std::vector<double> sums_;  // [groups, kv_heads, head_dim]
  std::vector<float> key_;
  ScoreCost cost_;
};

const Registered<Scoring> kCentroid({
    .name = "centroid",
    .help = "inner product of the query with the mean of the group's keys",
    .source = "ClusterKV (Liu et al., 2025), section III; DynaKV; ShadowKV's landmarks",
    .parameters = {head_rule_parameter("per_query_head")},
    .make =
        [](const Arguments& arguments, const Scoring::Context& context) {
          return std::make_unique<Centroid>(head_rule_of(arguments), context.shape);
        },
});

}  // namespace
}  // namespace kvreplay
