#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "policies/decide/kept_columns.hpp"
#include "policies/decide/scoring/support/aggregate.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

/// A token's keys of all heads, side by side, times the adapter A [kv_heads * head_dim, rank] give
/// the compressed key. A query head is projected with the rows of A that belong to its KV head, so
/// that its dot product with a compressed key approximates the logit.
class LowRank final : public Scoring {
 public:
  LowRank(HeadRule rule, const StreamShape& shape, const KeptColumns& kept, const Adapter& adapter)
      : shape_(shape),
        rank_(kept.used),
        counted_(kept.cost_per_column * static_cast<double>(kept.used)),
        aggregate_(rule, shape),
        flat_(static_cast<std::size_t>(shape.kv_heads * shape.head_dim)),
        queries_(static_cast<std::size_t>(shape.query_heads() * kept.used)) {
    // Transposed, [rank, kv_heads * head_dim], so that both projections become dot products.
    const std::int64_t columns = adapter.shape[1];
    for (std::int64_t r = 0; r < rank_; ++r) {
      for (std::int64_t i = 0; i < std::ssize(flat_); ++i) {
        basis_.push_back(adapter.values[static_cast<std::size_t>(i * columns + r)]);
      }
    }
  }

  void notify_event(const GroupEvent& event, const Groups&, const Entries& entries) override {
    if (event.kind != EventKind::kCreated && event.kind != EventKind::kAppended) return;
    for (const Token token : event.tokens) compress(token, entries);
  }

  [[nodiscard]] Scores score(QueryRows queries, const Groups& groups,
                             const Entries& entries) override {
    const std::int64_t tokens = entries.keys.tokens;
    const std::int64_t width = std::ssize(flat_);
    compressed_.resize(static_cast<std::size_t>(tokens * rank_));
    for (std::int64_t head = 0; head < shape_.query_heads(); ++head) {
      const float* const query = queries.data() + head * shape_.head_dim;
      const float* const block = basis_.data() + shape_.kv_head_of(head) * shape_.head_dim;
      for (std::int64_t r = 0; r < rank_; ++r) {
        queries_[static_cast<std::size_t>(head * rank_ + r)] =
            kernels::dot(query, block + r * width, shape_.head_dim);
      }
    }
    const std::span<float> scores = aggregate_.scores(tokens);
    kernels::score(queries_.data(), shape_.query_heads(), compressed_.data(), tokens, rank_,
                   scores.data(), tokens);
    const auto counted = [&](std::int64_t per_column) {
      return std::llround(static_cast<double>(per_column) * counted_);
    };
    cost_ = {
        .held_bytes = counted(2 * groups.grouped_tokens()),
        .read_bytes = counted(2 * (groups.grouped_tokens() + width)),
        .flops = counted(2 * shape_.query_heads() * (groups.grouped_tokens() + shape_.head_dim))};
    return aggregate_.of_tokens(groups);
  }

  [[nodiscard]] ScoreCost cost() const override { return cost_; }
  /// The product of the keys with the adapter, of the model's width.
  [[nodiscard]] PromptWork prompt_work(std::int64_t tokens) const override {
    const auto width = static_cast<double>(shape_.model_heads.width());
    return {.flops = std::llround(2 * static_cast<double>(tokens) * width * counted_),
            .bytes = 2 * tokens * std::ssize(flat_)};
  }

 private:
  void compress(Token token, const Entries& entries) {
    for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
      kernels::to_float(entries.keys.row(kv, token), flat_.data() + kv * shape_.head_dim,
                        shape_.head_dim);
    }
    const auto end = static_cast<std::size_t>((token + 1) * rank_);
    if (compressed_.size() < end) compressed_.resize(end);
    kernels::score(flat_.data(), 1, basis_.data(), rank_, std::ssize(flat_),
                   compressed_.data() + token * rank_, rank_);
  }

  StreamShape shape_;
  std::int64_t rank_;
  double counted_;  // columns of costs
  Aggregate aggregate_;
  std::vector<float> basis_;       // [rank, kv_heads * head_dim]
  std::vector<float> compressed_;  // [tokens, rank]; rows of tokens outside groups are meaningless
  std::vector<float> flat_;
  std::vector<float> queries_;  // [query heads, rank]
  ScoreCost cost_;
};

std::unique_ptr<Scoring> make_low_rank(const Arguments& arguments,
                                       const Scoring::Context& context) {
  const std::int64_t width = context.shape.kv_heads * context.shape.head_dim;
  if (context.adapters == nullptr) {
    throw UserError(arguments.place("part"), "low_rank has no adapter here",
                    "a trace with /adapter/NN/joint_lowrank");
  }
  const Adapter adapter = context.adapters->adapter(context.shape.layer, "joint_lowrank");
  if (adapter.shape.size() != 2 || adapter.shape[0] != width) {
    throw UserError(arguments.place("part"),
                    "the stream has " + std::to_string(width) + " key elements per token, " +
                        "the adapter another number",
                    "stream.heads = layer: the adapter joins all KV heads of a layer");
  }
  const std::int64_t model_width = context.shape.model_heads.width();
  std::int64_t rank = arguments.integer("rank");
  const bool by_sigma = rank == 0;
  if (by_sigma) rank = model_width / arguments.integer("sigma");
  // A wider model may have more columns than the recorded one: then all that there are count.
  if (rank > adapter.shape[1] && !(by_sigma && model_width > width)) {
    throw UserError(arguments.place(by_sigma ? "sigma" : "rank"),
                    "found rank " + std::to_string(rank),
                    "rank 1 to " + std::to_string(adapter.shape[1]) + ", what the adapter has");
  }
  return std::make_unique<LowRank>(head_rule_of(arguments), context.shape,
                                   kept_columns(rank, model_width, width, adapter.shape[1]),
                                   adapter);
}

const Registered<Scoring> kLowRank({
    .name = "low_rank",
    .help = "logits from keys of all heads compressed jointly; a group scores as its best token",
    .source = "KVSwap (Zhang et al., 2025), grouped prediction from a low-rank key cache",
    .parameters = {head_rule_parameter("sum_softmax"),
                   integer_parameter("rank", kOfModelColumns, 0, {0, 65536},
                                     "elements of a compressed key; 0 = by sigma"),
                   integer_parameter(
                       "sigma", kOfModelColumns, 32, {1, 65536},
                       "compression: rank = kv_heads * head_dim / sigma of the model that is "
                       "replayed, also where the recording is of a smaller one; at most what its "
                       "adapter has")},
    .make = make_low_rank,
});

}  // namespace
}  // namespace kvreplay
