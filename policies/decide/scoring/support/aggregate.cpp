#include "policies/decide/scoring/support/aggregate.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

constexpr float kNoScore = -std::numeric_limits<float>::infinity();

/// joined[i] = max(joined[i], values[i]), or their sum.
void join(float* joined, const float* values, std::int64_t n, bool takes_max) {
  constexpr int kRun = 16;  // a constant count, which the compiler turns into vectors
  const auto each = [&](const auto& of_two) {
    std::int64_t i = 0;
    for (; i + kRun <= n; i += kRun) {
      float run[kRun];
      for (int k = 0; k < kRun; ++k) run[k] = of_two(joined[i + k], values[i + k]);
      std::copy_n(run, kRun, joined + i);
    }
    for (; i < n; ++i) joined[i] = of_two(joined[i], values[i]);
  };
  if (takes_max) {
    each([](float a, float b) { return std::max(a, b); });
  } else {
    each([](float a, float b) { return a + b; });
  }
}

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
  find_outsiders([&](std::int64_t group) { return groups.live(static_cast<GroupId>(group)); });
  const std::int64_t rows = combine_heads();
  for (std::int64_t r = 0; r < rows; ++r) fill_outsiders(row(r), kNoScore);
  return {rows, columns_, {scores_.data(), static_cast<std::size_t>(rows * columns_)}};
}

Scores Aggregate::of_tokens(const Groups& groups) {
  if (takes_softmax()) {
    find_outsiders([&](std::int64_t token) {
      return groups.where(static_cast<Token>(token)) == Groups::Where::kGrouped;
    });
  }
  const std::int64_t rows = combine_heads();
  const std::int64_t count = groups.count();
  // The members of all groups side by side, read once for all rows.
  members_.resize(static_cast<std::size_t>(groups.grouped_tokens()));
  ends_.resize(static_cast<std::size_t>(count));
  Token* next = members_.data();
  bool single = true;  // every group has one member or none
  for (GroupId group = 0; group < count; ++group) {
    const std::vector<Token>& members = groups.members(group);
    for (const Token token : members) *next++ = token;
    ends_[static_cast<std::size_t>(group)] = next - members_.data();
    single = single && members.size() <= 1;
  }
  group_scores_.resize(static_cast<std::size_t>(rows * count));
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::span<const float> values = row(r);
    const auto value = [&](std::int64_t member) {
      return values[static_cast<std::size_t>(members_[static_cast<std::size_t>(member)])];
    };
    float* const scores = group_scores_.data() + r * count;
    std::int64_t member = 0;
    for (std::int64_t group = 0; group < count; ++group) {
      const std::int64_t end = ends_[static_cast<std::size_t>(group)];
      if (single) {
        scores[group] = member < end ? value(member) : kNoScore;
        member = end;
        continue;
      }
      float best = kNoScore;
      for (; member < end; ++member) best = std::max(best, value(member));
      scores[group] = best;
    }
  }
  return {rows, count, group_scores_};
}

bool Aggregate::takes_softmax() const {
  return rule_ == HeadRule::kSumSoftmax || rule_ == HeadRule::kMaxSoftmax;
}

template <typename IsCandidate>
void Aggregate::find_outsiders(IsCandidate&& is_candidate) {
  outsiders_.clear();
  for (std::int64_t column = 0; column < columns_; ++column) {
    if (is_candidate(column)) continue;
    if (outsiders_.empty() || outsiders_.back().second != column) {
      outsiders_.emplace_back(column, column);
    }
    ++outsiders_.back().second;
  }
}

void Aggregate::fill_outsiders(std::span<float> values, float value) const {
  for (const auto& [begin, end] : outsiders_) {
    std::fill(values.begin() + begin, values.begin() + end, value);
  }
}

std::int64_t Aggregate::combine_heads() {
  if (rule_ == HeadRule::kPerQueryHead) return query_heads_;
  if (columns_ == 0) return 1;
  if (takes_softmax()) {
    // Must be finite: minus infinity minus minus infinity would be NaN where nothing is a
    // candidate.
    constexpr float kOutside = -1e30F;
    for (std::int64_t head = 0; head < query_heads_; ++head) {
      const std::span<float> values = row(head);
      fill_outsiders(values, kOutside);
      kernels::softmax(values.data(), columns_, softmax_scale_);
    }
  }
  const bool takes_max = rule_ == HeadRule::kMax || rule_ == HeadRule::kMaxSoftmax;
  const std::span<float> joined = row(0);
  for (std::int64_t head = 1; head < query_heads_; ++head) {
    join(joined.data(), row(head).data(), columns_, takes_max);
  }
  if (rule_ == HeadRule::kMean) {
    const float share = 1.0F / static_cast<float>(query_heads_);
    for (float& value : joined) value *= share;
  }
  return 1;
}

}  // namespace kvreplay
