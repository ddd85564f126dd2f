#include "policies/decide/scoring/support/projected_keys.hpp"

#include <cassert>
#include <cmath>

#include "policies/kernels/kernels.hpp"

namespace kvreplay {

ProjectedKeys::ProjectedKeys(HeadRule rule, const StreamShape& shape, double cost_per_column)
    : shape_(shape),
      cost_per_column_(cost_per_column),
      aggregate_(rule, shape),
      heads_(static_cast<std::size_t>(shape.kv_heads)),
      key_(static_cast<std::size_t>(shape.head_dim)) {}

void ProjectedKeys::set_basis(std::int64_t kv_head, std::vector<float> rows) {
  Head& head = heads_[static_cast<std::size_t>(kv_head)];
  assert(head.keys.empty());
  head.rank = std::ssize(rows) / shape_.head_dim;
  head.basis = std::move(rows);
}

Scores ProjectedKeys::score(QueryRows queries, const Groups& groups, const Entries& entries) {
  const std::int64_t dim = shape_.head_dim;
  const std::int64_t per_head = shape_.queries_per_kv_head;
  const std::int64_t tokens = entries.keys.tokens;
  const std::span<float> scores = aggregate_.scores(tokens);
  cost_ = {};
  for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
    Head& head = heads_[static_cast<std::size_t>(kv)];
    assert(head.rank > 0);
    take_keys(head, kv, entries);
    queries_.resize(static_cast<std::size_t>(per_head * head.rank));
    for (std::int64_t q = 0; q < per_head; ++q) {
      project(head, queries.data() + (kv * per_head + q) * dim, queries_.data() + q * head.rank);
    }
    kernels::score(queries_.data(), per_head, head.keys.data(), tokens, head.rank,
                   scores.data() + kv * per_head * tokens, tokens);
    const auto counted = [&](std::int64_t per_column) {
      return std::llround(static_cast<double>(per_column * head.rank) * cost_per_column_);
    };
    cost_.held_bytes += counted(2 * groups.grouped_tokens());
    cost_.read_bytes += counted(2 * (groups.grouped_tokens() + dim));
    cost_.flops += counted(2 * per_head * (groups.grouped_tokens() + dim));
  }
  return aggregate_.of_tokens(groups);
}

PromptWork ProjectedKeys::prompt_work(std::int64_t tokens) const {
  double columns = 0;
  for (const Head& head : heads_) columns += static_cast<double>(head.rank) * cost_per_column_;
  const std::int64_t dim = shape_.model_heads.head_dim;
  return {.flops = std::llround(static_cast<double>(2 * tokens * dim) * columns),
          .bytes = 2 * tokens * shape_.kv_heads * shape_.head_dim};
}

void ProjectedKeys::take_keys(Head& head, std::int64_t kv_head, const Entries& entries) {
  std::int64_t token = std::ssize(head.keys) / head.rank;
  head.keys.resize(static_cast<std::size_t>(entries.keys.tokens * head.rank));
  for (; token < entries.keys.tokens; ++token) {
    kernels::to_float(entries.keys.row(kv_head, token), key_.data(), shape_.head_dim);
    project(head, key_.data(), head.keys.data() + token * head.rank);
  }
}

void ProjectedKeys::project(const Head& head, const float* row, float* projected) const {
  kernels::score(row, 1, head.basis.data(), head.rank, shape_.head_dim, projected, head.rank);
}

Adapter head_adapter(const Scoring::Context& context, const std::string& name,
                     const SourceLocation& place) {
  if (context.adapters == nullptr) {
    throw UserError(place, "there is no adapter here", "a trace with /adapter/NN/" + name);
  }
  Adapter adapter = context.adapters->adapter(context.shape.layer, name);
  const std::int64_t dim = context.shape.head_dim;
  const std::int64_t heads = context.shape.first_kv_head + context.shape.kv_heads;
  if (adapter.shape.size() != 3 || adapter.shape[0] < heads || adapter.shape[1] != dim ||
      adapter.shape[2] != dim) {
    throw UserError(place, "the adapter " + name + " has another shape",
                    "KV heads x " + std::to_string(dim) + " x " + std::to_string(dim));
  }
  return adapter;
}

std::vector<float> adapter_columns(const Adapter& adapter, std::int64_t kv_head,
                                   std::span<const std::int32_t> columns) {
  const std::int64_t dim = adapter.shape[1];
  std::vector<float> rows;
  for (const std::int32_t column : columns) {
    for (std::int64_t i = 0; i < dim; ++i) {
      rows.push_back(adapter.values[static_cast<std::size_t>((kv_head * dim + i) * dim + column)]);
    }
  }
  return rows;
}

}  // namespace kvreplay
