#include "traces/operations/head_statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

namespace kvreplay {
namespace {

constexpr std::size_t kLanes = 8;
constexpr std::int64_t kSinks = 16;
constexpr std::size_t kLatest = 64;

/// Eight partial sums: the same on every instruction set, and fast with wide vectors.
float dot(std::span<const float> a, std::span<const float> b) {
  std::array<float, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < a.size(); ++i) sums[i % kLanes] += a[i] * b[i];
  return std::accumulate(sums.begin(), sums.end(), 0.0F);
}

/// Softmax weights of the positions begin..end-1.
void attend(std::span<const float> query, RowView keys, double scale, std::int64_t begin,
            std::int64_t end, std::vector<double>& weights) {
  weights.clear();
  for (std::int64_t token = begin; token < end; ++token) {
    weights.push_back(static_cast<double>(dot(query, keys.row(token))) * scale);
  }
  softmax(weights);
}

double sum_of(std::span<const double> weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

/// Positions of the 64 heaviest, sorted; ties to the lower.
std::vector<std::int64_t> heaviest(std::span<const double> weights, std::int64_t begin) {
  std::vector<std::int64_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto top = std::min<std::ptrdiff_t>(64, std::ssize(order));
  const auto heavier = [&](std::int64_t a, std::int64_t b) {
    const double x = weights[static_cast<std::size_t>(a)];
    const double y = weights[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::nth_element(order.begin(), order.begin() + top - 1, order.end(), heavier);
  order.resize(static_cast<std::size_t>(top));
  for (std::int64_t& position : order) position += begin;
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

void softmax(std::span<double> scores) {
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - max);
  for (double& score : scores) score /= sum;
}

void AttentionSummary::add(std::vector<double>& weights, std::int64_t begin) {
  const std::span all(weights);
  const auto count = [&](std::size_t max) { return std::min(max, all.size()); };
  for (const double weight : weights) {
    if (weight > 0) entropy_nats -= weight * std::log(weight);
  }
  const auto sinks = static_cast<std::size_t>(std::max<std::int64_t>(0, kSinks - begin));
  first_16_mass += sum_of(all.first(count(sinks)));
  last_64_mass += sum_of(all.last(count(kLatest)));
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count(256)), all.end(),
                    std::greater<>{});
  top_16_mass += sum_of(all.first(count(16)));
  top_64_mass += sum_of(all.first(count(64)));
  top_256_mass += sum_of(all.first(count(256)));
}

void AttentionSummary::divide(double queries) {
  for (double* sum :
       {&entropy_nats, &top_16_mass, &top_64_mass, &top_256_mass, &first_16_mass, &last_64_mass}) {
    *sum /= queries;
  }
}

std::vector<std::int64_t> spread_positions(std::int64_t begin, std::int64_t end, std::int64_t max) {
  const std::int64_t room = std::max<std::int64_t>(1, end - 1 - begin);
  const std::int64_t count = std::min(room, max);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < count; ++i) {
    positions.push_back(begin + (count == 1 ? 0 : i * (room - 1) / (count - 1)));
  }
  return positions;
}

HeadStatistics measure_head(RowView keys, RowView queries, const MeasuredSteps& steps) {
  HeadStatistics total;
  std::vector<double> weights;
  std::vector<double> next;
  const auto first_seen = [&](std::int64_t position) {
    return steps.sliding_window > 0 ? std::max<std::int64_t>(0, position + 1 - steps.sliding_window)
                                    : 0;
  };
  for (const std::int64_t position : steps.positions) {
    const auto query = [&](std::int64_t at) { return queries.row(at - steps.query_start); };
    const std::int64_t begin = first_seen(position);
    attend(query(position), keys, steps.softmax_scale, begin, position + 1, weights);
    const std::vector<std::int64_t> here = heaviest(weights, begin);
    const std::int64_t next_begin = first_seen(position + 1);
    attend(query(position + 1), keys, steps.softmax_scale, next_begin, position + 2, next);
    const std::vector<std::int64_t> there = heaviest(next, next_begin);
    std::vector<std::int64_t> both;
    std::set_intersection(here.begin(), here.end(), there.begin(), there.end(),
                          std::back_inserter(both));
    total.top_64_overlap += static_cast<double>(both.size()) / static_cast<double>(here.size());

    total.add(weights, begin);
  }
  const auto steps_measured = static_cast<double>(steps.positions.size());
  total.divide(steps_measured);
  total.top_64_overlap /= steps_measured;
  return total;
}

}  // namespace kvreplay
