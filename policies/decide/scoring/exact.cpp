#include "policies/decide/scoring/support/aggregate.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

/// The true logits q . k of every token: an upper bound for scoring, and 'exact keys in place of
/// low rank'. All keys are in memory.
class Exact final : public Scoring {
 public:
  Exact(HeadRule rule, const StreamShape& shape) : shape_(shape), aggregate_(rule, shape) {}

  void notify_event(const GroupEvent&, const Groups&, const Entries&) override {}

  [[nodiscard]] Scores score(QueryRows queries, const Groups& groups,
                             const Entries& entries) override {
    const std::int64_t tokens = entries.keys.tokens;
    const std::int64_t heads = shape_.queries_per_kv_head;
    const std::span<float> logits = aggregate_.scores(tokens);
    for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
      kernels::score(queries.data() + kv * heads * shape_.head_dim, heads, entries.keys.head(kv),
                     tokens, shape_.head_dim, logits.data() + kv * heads * tokens, tokens);
    }
    const std::int64_t elements = tokens * shape_.head_dim;
    cost_ = {.held_bytes = 2 * shape_.kv_heads * elements,
             .read_bytes = 2 * shape_.kv_heads * elements,
             .flops = 2 * shape_.query_heads() * elements};
    return aggregate_.of_tokens(groups);
  }

  [[nodiscard]] ScoreCost cost() const override { return cost_; }

 private:
  StreamShape shape_;
  Aggregate aggregate_;
  ScoreCost cost_;
};

const Registered<Scoring> kExact({
    .name = "exact",
    .help = "true logits of every token; a group scores as its best token",
    .source = "ours: the bound that every other scoring approaches",
    .parameters = {head_rule_parameter("per_query_head")},
    .make =
        [](const Arguments& arguments, const Scoring::Context& context) {
          return std::make_unique<Exact>(head_rule_of(arguments), context.shape);
        },
});

}  // namespace
}  // namespace kvreplay
