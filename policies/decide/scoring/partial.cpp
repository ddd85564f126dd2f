#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>

#include "policies/decide/directions.hpp"
#include "policies/decide/kept_columns.hpp"
#include "policies/decide/scoring/support/projected_keys.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

struct PartialSettings {
  KeptColumns kept{};
  bool columns_of_keys_too = false;
  std::optional<Adapter> skew;  ///< none: computed from the prompt's queries
};

/// Queries and keys are rotated by an orthogonal matrix (the skew) that gathers what matters into
/// few columns. Of those, the columns that the prompt's queries use most represent the whole.
class Partial final : public ProjectedKeys {
 public:
  Partial(HeadRule rule, const StreamShape& shape, PartialSettings settings)
      : ProjectedKeys(rule, shape, settings.kept.cost_per_column), settings_(std::move(settings)) {}

  void notify_prompt(const Entries& entries, const QueryWindow& window) override {
    if (window.queries.tokens == 0) {
      throw UserError({"", "scoring/part"}, "partial, but the trace holds no query of the prompt",
                      "a trace whose query_start lies before the first decode step");
    }
    for (std::int64_t kv = 0; kv < shape().kv_heads; ++kv) {
      const std::vector<float> skew = skew_rows(kv, window);
      const std::int64_t first = kv * shape().queries_per_kv_head;
      std::vector<std::int32_t> columns =
          top_columns(skew, window.queries.select_heads(first, shape().queries_per_kv_head));
      if (settings_.columns_of_keys_too) {
        const std::vector<std::int32_t> of_keys =
            top_columns(skew, entries.keys.select_heads(kv, 1));
        std::vector<std::int32_t> both;
        std::set_union(columns.begin(), columns.end(), of_keys.begin(), of_keys.end(),
                       std::back_inserter(both));
        columns = std::move(both);
      }
      std::vector<float> basis;
      for (const std::int32_t column : columns) {
        const auto row = skew.begin() + column * shape().head_dim;
        basis.insert(basis.end(), row, row + shape().head_dim);
      }
      set_basis(kv, std::move(basis));
    }
    skewed_rows_ = shape().query_heads() * window.queries.tokens;
    if (settings_.columns_of_keys_too) skewed_rows_ += shape().kv_heads * entries.keys.tokens;
  }
  /// In addition: the skew of the rows whose columns are compared, and where the prompt gives the
  /// skew, the products of the queries with each other and their eigenvectors (9 d^3: Golub and Van
  /// Loan, section 8.3).
  [[nodiscard]] PromptWork prompt_work(std::int64_t tokens) const override {
    PromptWork work = ProjectedKeys::prompt_work(tokens);
    const std::int64_t dim = shape().model_heads.head_dim;
    // At the recorded width, of which there is one more factor in the model's cost.
    const std::int64_t per_row = 2 * shape().head_dim * dim;
    work.flops += skewed_rows_ * per_row;
    if (!settings_.skew) {
      work.flops += skewed_rows_ * per_row + 9 * shape().kv_heads * shape().head_dim * dim * dim;
    }
    return work;
  }

 private:
  /// The columns of the skew matrix, as rows.
  [[nodiscard]] std::vector<float> skew_rows(std::int64_t kv, const QueryWindow& window) const {
    const std::int64_t dim = shape().head_dim;
    if (settings_.skew) {
      std::vector<std::int32_t> all(static_cast<std::size_t>(dim));
      std::iota(all.begin(), all.end(), 0);
      return adapter_columns(*settings_.skew, shape().first_kv_head + kv, all);
    }
    Directions queries(dim);
    for (std::int64_t q = 0; q < shape().queries_per_kv_head; ++q) {
      queries.add(window.queries, kv * shape().queries_per_kv_head + q);
    }
    return queries.leading(dim);
  }

  /// The columns with the largest sums of absolute values over the skewed rows of all given heads;
  /// ascending.
  [[nodiscard]] std::vector<std::int32_t> top_columns(const std::vector<float>& skew,
                                                      const HalfTensor& rows) const {
    const std::int64_t dim = shape().head_dim;
    std::vector<float> row(static_cast<std::size_t>(dim));
    std::vector<float> skewed(row.size());
    std::vector<float> sums(row.size());
    for (std::int64_t head = 0; head < rows.heads; ++head) {
      for (std::int64_t i = 0; i < rows.tokens; ++i) {
        kernels::to_float(rows.row(head, i), row.data(), dim);
        kernels::score(row.data(), 1, skew.data(), dim, dim, skewed.data(), dim);
        for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += std::abs(skewed[c]);
      }
    }
    std::vector<std::int32_t> columns(static_cast<std::size_t>(settings_.kept.used));
    kernels::top_k(sums.data(), dim, std::ssize(columns), columns);
    return columns;
  }

  PartialSettings settings_;
  std::int64_t skewed_rows_ = 0;
};

const Registered<Scoring> kPartial({
    .name = "partial",
    .help = "logits from the few columns of skewed keys that the prompt's queries use most",
    .source = "InfiniGen (Lee et al., OSDI 2024), sections 4.2 and 4.3, and its released code; "
              "ours: under grouped queries the sums run over the query heads of a KV head",
    .parameters =
        {head_rule_parameter("per_query_head"),

         real_parameter("ratio", kOfModelColumns, 0.2, {0, 1},
                        "columns kept, as a share of head_dim of the model that is replayed"),
         choice_parameter(
             "columns_of", {"queries", "queries_and_keys"}, "queries",
             "whose largest columns are kept: those of the queries, or the union of theirs "
             "and those of the keys"),
         choice_parameter("skew", {"adapter", "prompt"}, "prompt",
                          "where the skew comes from: another text (/adapter/NN/head_skew), or, "
                          "ours, the prompt's own last queries")},
    .make =
        [](const Arguments& arguments, const Scoring::Context& context) {
          const std::int64_t dim = context.shape.head_dim;
          const std::int64_t model_dim = context.shape.model_heads.head_dim;
          const auto kept =
              static_cast<std::int64_t>(arguments.real("ratio") * static_cast<double>(model_dim));
          PartialSettings settings{
              .kept = kept_columns(kept, model_dim, dim, dim),
              .columns_of_keys_too = arguments.text("columns_of") == "queries_and_keys",
              .skew = std::nullopt};
          if (arguments.text("skew") == "adapter") {
            settings.skew = head_adapter(context, "head_skew", arguments.place("skew"));
          }
          return std::make_unique<Partial>(head_rule_of(arguments), context.shape,
                                           std::move(settings));
        },
});

}  // namespace
}  // namespace kvreplay
