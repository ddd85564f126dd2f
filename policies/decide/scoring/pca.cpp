#include <algorithm>
#include <cmath>
#include <numeric>

#include "policies/decide/kept_columns.hpp"
#include "policies/decide/scoring/support/projected_keys.hpp"

namespace kvreplay {
namespace {

/// Keys and queries in the first principal dimensions of each KV head.
class Pca final : public ProjectedKeys {
 public:
  Pca(HeadRule rule, const StreamShape& shape, const KeptColumns& kept, const Adapter& adapter)
      : ProjectedKeys(rule, shape, kept.cost_per_column) {
    std::vector<std::int32_t> first(static_cast<std::size_t>(kept.used));
    std::iota(first.begin(), first.end(), 0);
    for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
      set_basis(kv, adapter_columns(adapter, shape.first_kv_head + kv, first));
    }
  }
};

std::unique_ptr<Scoring> make_pca(const Arguments& arguments, const Scoring::Context& context) {
  const std::int64_t max = context.shape.model_heads.head_dim;
  std::int64_t dims = arguments.integer("dims");
  if (dims == 0) {
    const double share = arguments.real("dims_share") * static_cast<double>(max);
    dims = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(share)));
  }
  if (dims > max) {
    throw UserError(arguments.place("dims"), "found " + std::to_string(dims),
                    "at most " + std::to_string(max) + ", the size of a head");
  }
  const std::int64_t recorded = context.shape.head_dim;
  return std::make_unique<Pca>(head_rule_of(arguments), context.shape,
                               kept_columns(dims, max, recorded, recorded),
                               head_adapter(context, "head_pca", arguments.place("part")));
}

const Registered<Scoring> kPca({
    .name = "pca",
    .help = "logits from the first principal dimensions of each KV head's keys",
    .source = "Loki (Singhania et al., 2024), section 4; released code methods/pca_topk",
    .parameters = {head_rule_parameter("per_query_head"),
                   integer_parameter("dims", kOfModelColumns, 0, {0, 65536},
                                     "dimensions kept; 0 = by dims_share"),
                   real_parameter(
                       "dims_share", kOfModelColumns, 0.25, {0, 1},
                       "dimensions kept, as a share of head_dim of the model that is replayed")},
    .make = make_pca,
});

}  // namespace
}  // namespace kvreplay
