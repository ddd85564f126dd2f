#include "traces/head_statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

namespace kvreplay {
namespace {

constexpr std::size_t kLanes = 8;

/// Eight partial sums: the same on every instruction set, and fast on those with wide vectors.
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
  const double most = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - most);
  for (double& weight : weights) weight /= sum;
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

std::vector<std::int64_t> spread_positions(std::int64_t begin, std::int64_t end,
                                           std::int64_t most) {
  const std::int64_t room = std::max<std::int64_t>(1, end - 1 - begin);
  const std::int64_t count = std::min(room, most);
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

    for (const double weight : weights) {
      if (weight > 0) total.entropy_nats -= weight * std::log(weight);
    }
    const std::span all(weights);
    const auto sinks = static_cast<std::size_t>(std::max<std::int64_t>(0, 16 - begin));
    total.first_16_mass += sum_of(all.first(std::min(sinks, all.size())));
    total.last_64_mass += sum_of(all.last(std::min<std::size_t>(64, all.size())));
    const auto top = std::min<std::ptrdiff_t>(256, std::ssize(weights));
    std::partial_sort(weights.begin(), weights.begin() + top, weights.end(), std::greater<>{});
    total.top_16_mass += sum_of(all.first(std::min<std::size_t>(16, all.size())));
    total.top_64_mass += sum_of(all.first(std::min<std::size_t>(64, all.size())));
    total.top_256_mass += sum_of(all.first(static_cast<std::size_t>(top)));
  }
  for (double* sum :
       {&total.entropy_nats, &total.top_16_mass, &total.top_64_mass, &total.top_256_mass,
        &total.first_16_mass, &total.last_64_mass, &total.top_64_overlap}) {
    *sum /= static_cast<double>(steps.positions.size());
  }
  return total;
}

}  // namespace kvreplay
