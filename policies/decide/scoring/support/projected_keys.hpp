#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/decide/scoring/support/aggregate.hpp"

namespace kvreplay {

/// Scoring by keys of a few dimensions: each KV head has its own basis, and the product of the two
/// projections approximates q . k. The projected keys of all tokens are in memory.
class ProjectedKeys : public Scoring {
 public:
  /// cost_per_column: KeptColumns.
  ProjectedKeys(HeadRule rule, const StreamShape& shape, double cost_per_column);

  void notify_event(const GroupEvent&, const Groups&, const Entries&) override {}
  [[nodiscard]] Scores score(QueryRows queries, const Groups& groups, const Entries& entries) final;
  [[nodiscard]] ScoreCost cost() const final { return cost_; }
  /// The projection of the keys.
  [[nodiscard]] PromptWork prompt_work(std::int64_t tokens) const override;

 protected:
  [[nodiscard]] const StreamShape& shape() const { return shape_; }
  /// `rows`: [rank, head_dim], orthonormal. Must be set for every KV head before the first score().
  void set_basis(std::int64_t kv_head, std::vector<float> rows);

 private:
  struct Head {
    std::int64_t rank = 0;
    std::vector<float> basis;  // [rank, head_dim]
    std::vector<float> keys;   // [tokens, rank]
  };

  void take_keys(Head& head, std::int64_t kv_head, const Entries& entries);
  void project(const Head& head, const float* row, float* projected) const;

  StreamShape shape_;
  double cost_per_column_;
  Aggregate aggregate_;
  std::vector<Head> heads_;  // by KV head
  std::vector<float> key_;
  std::vector<float> queries_;  // [query heads of a KV head, rank]
  ScoreCost cost_;
};

/// The layer's adapter of that name, [KV heads, head_dim, head_dim] (head_pca, head_skew). Throws
/// UserError where it is missing or has another shape.
[[nodiscard]] Adapter head_adapter(const Scoring::Context& context, const std::string& name,
                                   const SourceLocation& place);
/// Columns of a KV head's matrix as rows, [columns, head_dim]. The KV head's number is that within
/// the layer.
[[nodiscard]] std::vector<float> adapter_columns(const Adapter& adapter, std::int64_t kv_head,
                                                 std::span<const std::int32_t> columns);

}  // namespace kvreplay
