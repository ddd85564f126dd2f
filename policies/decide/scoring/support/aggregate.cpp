#include "policies/decide/scoring/support/aggregate.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

constexpr float kNoScore = -std::numeric_limits<float>::infinity();

}  // namespace

Parameter head_rule_parameter(std::string default_rule) {
  return choice_parameter(
      "heads", {"per_query_head", "mean", "max", "sum_softmax", "max_softmax"},
      std::move(default_rule),
      "how the scores of the stream's query heads are combined; softmax is over the candidates");
}

HeadRule head_rule_of(const Arguments& arguments) {
  const std::string& name = arguments.text("heads");
  if (name == "mean") return HeadRule::kMean;
  if (name == "max") return HeadRule::kMax;
  if (name == "sum_softmax") return HeadRule::kSumSoftmax;
  if (name == "max_softmax") return HeadRule::kMaxSoftmax;
  return HeadRule::kPerQueryHead;
}

Aggregate::Aggregate(HeadRule rule, const StreamShape& shape)
    : rule_(rule), query_heads_(shape.query_heads()), softmax_scale_(shape.softmax_scale) {}

std::span<float> Aggregate::scores(std::int64_t columns) {
  columns_ = columns;
  const auto size = static_cast<std::size_t>(query_heads_ * columns);
  if (scores_.size() < size) scores_.resize(size);
  return {scores_.data(), size};
}

std::span<float> Aggregate::row(std::int64_t head) {
  return {scores_.data() + head * columns_, static_cast<std::size_t>(columns_)};
}

Scores Aggregate::of_groups(const Groups& groups) {
  assert(columns_ == groups.count());
  candidate_.resize(static_cast<std::size_t>(columns_));
  for (GroupId group = 0; group < groups.count(); ++group) {
    candidate_[static_cast<std::size_t>(group)] = groups.live(group);
  }
  const std::int64_t rows = combine_heads();
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::span<float> values = row(r);
    for (std::size_t g = 0; g < values.size(); ++g) {
      if (!candidate_[g]) values[g] = kNoScore;
    }
  }
  return {rows, columns_, {scores_.data(), static_cast<std::size_t>(rows * columns_)}};
}

Scores Aggregate::of_tokens(const Groups& groups) {
  candidate_.resize(static_cast<std::size_t>(columns_));
  for (std::int64_t t = 0; t < columns_; ++t) {
    candidate_[static_cast<std::size_t>(t)] =
        groups.where(static_cast<Token>(t)) == Groups::Where::kGrouped;
  }
  const std::int64_t rows = combine_heads();
  const std::int64_t count = groups.count();
  group_scores_.resize(static_cast<std::size_t>(rows * count));
  auto score = group_scores_.begin();
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::span<const float> values = row(r);
    for (GroupId group = 0; group < count; ++group) {
      float best = kNoScore;
      for (const Token token : groups.members(group)) {
        best = std::max(best, values[static_cast<std::size_t>(token)]);
      }
      *score++ = best;
    }
  }
  return {rows, count, group_scores_};
}

std::int64_t Aggregate::combine_heads() {
  if (rule_ == HeadRule::kPerQueryHead) return query_heads_;
  if (columns_ == 0) return 1;
  const bool softmax = rule_ == HeadRule::kSumSoftmax || rule_ == HeadRule::kMaxSoftmax;
  if (softmax) {
    // Must be finite: minus infinity minus minus infinity would be NaN where nothing is a
    // candidate.
    constexpr float kOutside = -1e30F;
    for (std::int64_t head = 0; head < query_heads_; ++head) {
      const std::span<float> values = row(head);
      for (std::size_t c = 0; c < values.size(); ++c) {
        if (!candidate_[c]) values[c] = kOutside;
      }
      kernels::softmax(values.data(), columns_, softmax_scale_);
    }
  }
  const bool takes_max = rule_ == HeadRule::kMax || rule_ == HeadRule::kMaxSoftmax;
  const std::span<float> joined = row(0);
  for (std::int64_t head = 1; head < query_heads_; ++head) {
    const std::span<const float> values = row(head);
    for (std::size_t c = 0; c < joined.size(); ++c) {
      joined[c] = takes_max ? std::max(joined[c], values[c]) : joined[c] + values[c];
    }
  }
  if (rule_ == HeadRule::kMean) {
    const float share = 1.0F / static_cast<float>(query_heads_);
    for (float& value : joined) value *= share;
  }
  return 1;
}

}  // namespace kvreplay
