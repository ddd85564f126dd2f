#include <algorithm>
#include <cstdint>

#include "base/random.hpp"
#include "policies/decide/scoring/support/aggregate.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

struct Quantiser {
  std::int64_t subspaces = 0;
  std::int64_t code_bits = 0;
  std::int64_t max_iterations = 0;
};

/// Keys as codes: each of a few sub-spaces of the head's dimensions has centroids of the prompt's
/// keys, and a key is represented by the numbers of its nearest ones. A logit is the sum of the
/// query's products with those centroids, looked up. The centroids do not change as tokens arrive.
class ProductQuantisation final : public Scoring {
 public:
  ProductQuantisation(HeadRule rule, const Quantiser& quantiser, const Context& context)
      : shape_(context.shape),
        quantiser_(quantiser),
        dim_(context.shape.head_dim / quantiser.subspaces),
        seed_(context.seed),
        sink_tokens_(context.sink_tokens),
        aggregate_(rule, context.shape),
        books_(static_cast<std::size_t>(context.shape.kv_heads * quantiser.subspaces)) {}

  void notify_prompt(const Entries& entries, const QueryWindow&) override {
    const std::int64_t begin = std::min(sink_tokens_, entries.keys.tokens - 1);
    const std::int64_t count = entries.keys.tokens - begin;
    const std::int64_t centroids = std::min(std::int64_t{1} << quantiser_.code_bits, count);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
    for (std::size_t b = 0; b < books_.size(); ++b) {
      const std::vector<Half> rows = sub_rows(entries, b, begin, entries.keys.tokens);
      books_[b].centroids.resize(static_cast<std::size_t>(centroids * dim_));
      const std::int64_t iterations = kernels::k_means(rows.data(), count, dim_,
                                                       {.metric = kernels::Metric::kEuclidean,
                                                        .clusters = centroids,
                                                        .max_iterations = quantiser_.max_iterations,
                                                        .stop_when_stable = true,
                                                        .seed = Random::derive(seed_, b)},
                                                       books_[b].centroids, labels);
      // Each iteration compares and adds, and one more comparison gives the codes.
      const std::int64_t elements = (iterations + 2) * count * dim_;
      work_ += {.flops = (2 * centroids + 1) * elements, .bytes = 2 * elements};
    }
  }

  void notify_event(const GroupEvent&, const Groups&, const Entries&) override {}

  [[nodiscard]] Scores score(QueryRows queries, const Groups& groups,
                             const Entries& entries) override {
    const std::int64_t tokens = entries.keys.tokens;
    const std::int64_t per_head = shape_.queries_per_kv_head;
    const std::span<float> scores = aggregate_.scores(tokens);
    std::fill(scores.begin(), scores.end(), 0.0F);
    std::int64_t centroids = 0;
    for (std::size_t b = 0; b < books_.size(); ++b) {
      Book& book = books_[b];
      encode(b, entries);
      centroids = std::ssize(book.centroids) / dim_;
      table_.resize(static_cast<std::size_t>(centroids));
      const std::int64_t kv = kv_head_of(b);
      for (std::int64_t head = kv * per_head; head < (kv + 1) * per_head; ++head) {
        const float* const query = queries.data() + head * shape_.head_dim + subspace_of(b) * dim_;
        kernels::score(query, 1, book.centroids.data(), centroids, dim_, table_.data(), centroids);
        float* const row = scores.data() + head * tokens;
        for (std::int64_t t = 0; t < tokens; ++t) {
          row[t] += table_[book.codes[static_cast<std::size_t>(t)]];
        }
      }
    }
    const std::int64_t code_bits =
        groups.grouped_tokens() * std::ssize(books_) * quantiser_.code_bits;
    const std::int64_t books = 2 * shape_.kv_heads * centroids * shape_.head_dim;
    const std::int64_t held = code_bits / 8 + books;
    cost_ = {.held_bytes = held,
             .fixed_bytes = books,
             .read_bytes = held,
             .flops = shape_.query_heads() * (2 * centroids * shape_.head_dim +
                                              groups.grouped_tokens() * quantiser_.subspaces)};
    return aggregate_.of_tokens(groups);
  }

  [[nodiscard]] ScoreCost cost() const override { return cost_; }
  [[nodiscard]] PromptWork prompt_work(std::int64_t /*tokens*/) const override { return work_; }

 private:
  /// The codebook of one KV head and sub-space.
  struct Book {
    std::vector<float> centroids;     // [centroids, dim_]
    std::vector<std::uint8_t> codes;  // [tokens]
  };

  [[nodiscard]] std::int64_t kv_head_of(std::size_t book) const {
    return static_cast<std::int64_t>(book) / quantiser_.subspaces;
  }
  [[nodiscard]] std::int64_t subspace_of(std::size_t book) const {
    return static_cast<std::int64_t>(book) % quantiser_.subspaces;
  }

  /// The book's part of the keys of tokens [begin, end), [end - begin, dim_].
  [[nodiscard]] std::vector<Half> sub_rows(const Entries& entries, std::size_t book,
                                           std::int64_t begin, std::int64_t end) const {
    std::vector<Half> rows(static_cast<std::size_t>((end - begin) * dim_));
    Half* to = rows.data();
    for (std::int64_t token = begin; token < end; ++token) {
      to = std::copy_n(entries.keys.row(kv_head_of(book), token) + subspace_of(book) * dim_, dim_,
                       to);
    }
    return rows;
  }

  /// Encodes the tokens that have no codes yet.
  void encode(std::size_t b, const Entries& entries) {
    Book& book = books_[b];
    const auto begin = std::ssize(book.codes);
    const std::vector<Half> rows = sub_rows(entries, b, begin, entries.keys.tokens);
    std::vector<std::int32_t> nearest(static_cast<std::size_t>(entries.keys.tokens - begin));
    kernels::assign(rows.data(), std::ssize(nearest), book.centroids.data(),
                    std::ssize(book.centroids) / dim_, dim_, kernels::Metric::kEuclidean, nearest);
    for (const std::int32_t code : nearest) {
      book.codes.push_back(static_cast<std::uint8_t>(code));
    }
  }

  StreamShape shape_;
  Quantiser quantiser_;
  std::int64_t dim_;  // dimensions per sub-space
  std::uint64_t seed_;
  std::int64_t sink_tokens_;
  Aggregate aggregate_;
  std::vector<Book> books_;  // by KV head, then sub-space
  std::vector<float> table_;
  PromptWork work_;
  ScoreCost cost_;
};

std::unique_ptr<Scoring> make_product_quantisation(const Arguments& arguments,
                                                   const Scoring::Context& context) {
  const Quantiser quantiser{.subspaces = arguments.integer("subspaces"),
                            .code_bits = arguments.integer("code_bits"),
                            .max_iterations = arguments.integer("max_iterations")};
  if (context.shape.head_dim % quantiser.subspaces != 0) {
    throw UserError(arguments.place("subspaces"), "found " + std::to_string(quantiser.subspaces),
                    "a divisor of " + std::to_string(context.shape.head_dim) + ", a head's size");
  }
  return std::make_unique<ProductQuantisation>(head_rule_of(arguments), quantiser, context);
}

const Registered<Scoring> kProductQuantisation({
    .name = "product_quantisation",
    .help = "logits looked up by the codes of a key's sub-spaces; the prompt gives the codebooks",
    .source = "PQCache (Zhang et al., SIGMOD 2025), section 3, and its released code; the fixed "
              "number of iterations is ours",
    .parameters = {head_rule_parameter("sum_softmax"),
                   integer_parameter("subspaces", "", 2, {1, 256},
                                     "parts into which a head's dimensions "
                                     "are cut"),
                   integer_parameter("code_bits", "bits", 6, {1, 8},
                                     "width of a code: 2^code_bits centroids per sub-space"),
                   integer_parameter(
                       "max_iterations", "iterations", 25, {1, 10000},
                       "limit of Lloyd's iterations; PQCache does 3 to 300, as many as its "
                       "prefill hides")},
    .make = make_product_quantisation,
});

}  // namespace
}  // namespace kvreplay
