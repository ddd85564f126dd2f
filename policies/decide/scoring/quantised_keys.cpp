#include <cmath>
#include <vector>

#include "policies/decide/scoring/support/aggregate.hpp"
#include "policies/kernels/coded_rows.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

float as_stored(double value) {
  return to_float(to_half(static_cast<float>(value)));
}

/// Keys of all tokens as codes of 8 or 4 bits in memory, multiplied as integers by the query as
/// codes of 8 bits. What is rounded is a key's distance from the mean of the prompt's keys, each
/// channel in units of its spread there: channels that lie far from zero (Qwen2's biases) or vary
/// more than others would take the codes' range. The query is multiplied by the spreads in turn,
/// and its product with the mean is added to every logit.
class QuantisedKeys final : public Scoring {
 public:
  QuantisedKeys(HeadRule rule, std::int64_t bits, const StreamShape& shape)
      : shape_(shape),
        bits_(bits),
        aggregate_(rule, shape),
        means_(static_cast<std::size_t>(shape.kv_heads * shape.head_dim)),
        spreads_(means_.size(), 1.0F),
        key_(static_cast<std::size_t>(shape.head_dim)),
        queries_(static_cast<std::size_t>(shape.queries_per_kv_head * shape.head_dim)),
        offsets_(static_cast<std::size_t>(shape.queries_per_kv_head)) {
    for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
      codes_.emplace_back(shape.head_dim, static_cast<int>(bits));
    }
  }

  void notify_prompt(const Entries& entries, const QueryWindow&) override {
    const auto tokens = static_cast<double>(entries.keys.tokens);
    for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
      std::vector<double> sums(key_.size());
      std::vector<double> squares(key_.size());
      for (std::int64_t token = 0; token < entries.keys.tokens; ++token) {
        kernels::to_float(entries.keys.row(kv, token), key_.data(), shape_.head_dim);
        for (std::size_t i = 0; i < key_.size(); ++i) {
          const auto element = static_cast<double>(key_[i]);
          sums[i] += element;
          squares[i] += element * element;
        }
      }
      const auto first = static_cast<std::size_t>(kv) * key_.size();
      for (std::size_t i = 0; i < key_.size(); ++i) {
        const double mean = sums[i] / tokens;
        const double variance = squares[i] / tokens - mean * mean;
        const float spread = variance > 0 ? as_stored(std::sqrt(variance)) : 0.0F;
        means_[first + i] = as_stored(mean);
        spreads_[first + i] = spread > 0 ? spread : 1.0F;
      }
    }
  }

  void notify_event(const GroupEvent& event, const Groups&, const Entries& entries) override {
    if (event.kind != EventKind::kCreated && event.kind != EventKind::kAppended) return;
    for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
      kernels::CodedRows& codes = codes_[static_cast<std::size_t>(kv)];
      const auto first = static_cast<std::size_t>(kv) * key_.size();
      for (const Token token : event.tokens) {
        kernels::to_float(entries.keys.row(kv, token), key_.data(), shape_.head_dim);
        for (std::size_t i = 0; i < key_.size(); ++i) {
          key_[i] = (key_[i] - means_[first + i]) / spreads_[first + i];
        }
        if (codes.count() <= token) codes.resize(token + 1);
        codes.set(token, key_.data());
      }
    }
  }

  [[nodiscard]] Scores score(QueryRows queries, const Groups& groups,
                             const Entries& entries) override {
    const std::int64_t dim = shape_.head_dim;
    const std::int64_t heads = shape_.queries_per_kv_head;
    const std::int64_t tokens = entries.keys.tokens;
    const std::span<float> logits = aggregate_.scores(tokens);
    for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
      kernels::CodedRows& codes = codes_[static_cast<std::size_t>(kv)];
      codes.resize(tokens);
      const float* const of_head = queries.data() + kv * heads * dim;
      kernels::score(of_head, heads, means_.data() + kv * dim, 1, dim, offsets_.data(), 1);
      for (std::int64_t i = 0; i < heads * dim; ++i) {
        queries_[static_cast<std::size_t>(i)] =
            of_head[i] * spreads_[static_cast<std::size_t>(kv * dim + i % dim)];
      }
      codes.score(queries_.data(), heads, offsets_.data(), logits.data() + kv * heads * tokens,
                  tokens);
    }
    const std::int64_t width = shape_.kv_heads * dim;
    const std::int64_t channels = 2 * 2 * width;
    // A head has one scale, whatever its size in the model that is replayed.
    const std::int64_t scales = 2 * groups.grouped_tokens() * width / shape_.model_heads.head_dim;
    const std::int64_t held = groups.grouped_tokens() * width * bits_ / 8 + scales + channels;
    cost_ = {.held_bytes = held,
             .fixed_bytes = channels,
             .read_bytes = held,
             .flops = shape_.query_heads() * dim * (2 * groups.grouped_tokens() + 3)};
    return aggregate_.of_tokens(groups);
  }

  [[nodiscard]] ScoreCost cost() const override { return cost_; }
  /// Per element 3 operations for the sums of means and spreads, and 4 for the code: the
  /// difference, the quotient, the comparison with the largest, and what is rounded. Each reads the
  /// keys.
  [[nodiscard]] PromptWork prompt_work(std::int64_t tokens) const override {
    const std::int64_t elements = tokens * shape_.kv_heads * shape_.head_dim;
    return {.flops = 7 * elements, .bytes = 2 * 2 * elements};
  }

 private:
  StreamShape shape_;
  std::int64_t bits_;
  Aggregate aggregate_;
  std::vector<float> means_;               // [kv_heads, head_dim], halves as floats
  std::vector<float> spreads_;             // likewise
  std::vector<kernels::CodedRows> codes_;  // of each KV head; what is in no group is meaningless
  std::vector<float> key_;
  std::vector<float> queries_;  // [query heads of one KV head, head_dim], times the spreads
  std::vector<float> offsets_;  // of each query head of one KV head: the product with the mean
  ScoreCost cost_;
};

std::unique_ptr<Scoring> make_quantised_keys(const Arguments& arguments,
                                             const Scoring::Context& context) {
  const std::int64_t bits = arguments.integer("bits");
  if (bits != 8 && bits != 4) {
    throw UserError(arguments.place("bits"), "found " + std::to_string(bits), "8 or 4");
  }
  return std::make_unique<QuantisedKeys>(head_rule_of(arguments), bits, context.shape);
}

const Registered<Scoring> kQuantisedKeys({
    .name = "quantised_keys",
    .help = "logits from 8- or 4-bit codes of all keys and 8-bit codes of the query, multiplied as "
            "integers; a group scores as its best token",
    .source =
        "ours: one scale per token and KV head, of channels in units of their spread in the prompt",
    .parameters = {head_rule_parameter("per_query_head"),
                   integer_parameter("bits", "bits", 8, {4, 8},
                                     "width of a code, packed: 8, or 4")},
    .make = make_quantised_keys,
});

}  // namespace
}  // namespace kvreplay
