#include "sim/tuning/pareto.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace kvreplay {
namespace {

/// The area below the reference that the points dominate, in the first two objectives.
double area(std::vector<Objectives> points, const Objectives& reference) {
  std::sort(points.begin(), points.end());
  double sum = 0;
  double height = reference[1];
  for (const Objectives& point : points) {
    if (point[1] >= height) continue;
    sum += (reference[0] - point[0]) * (height - point[1]);
    height = point[1];
  }
  return sum;
}

}  // namespace

bool dominates(const Objectives& a, const Objectives& b) {
  bool below = false;
  for (std::size_t i = 0; i < kObjectives; ++i) {
    if (a[i] > b[i]) return false;
    below |= a[i] < b[i];
  }
  return below;
}

bool better(const Score& a, const Score& b) {
  if (!a.feasible() || !b.feasible()) return a.violation < b.violation;
  return dominates(a.objectives, b.objectives);
}

std::vector<std::size_t> front_ranks(std::span<const Score> scores) {
  const std::size_t count = scores.size();
  std::vector<std::size_t> ranks(count, 0);
  std::vector<std::size_t> betters(count, 0);  // among those without a rank
  std::vector<std::vector<std::size_t>> worse(count);
  std::vector<std::size_t> front;
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = 0; b < count; ++b) {
      if (better(scores[a], scores[b])) worse[a].push_back(b);
      if (better(scores[b], scores[a])) ++betters[a];
    }
    if (betters[a] == 0) front.push_back(a);
  }
  for (std::size_t rank = 0; !front.empty(); ++rank) {
    std::vector<std::size_t> next;
    for (const std::size_t a : front) {
      ranks[a] = rank;
      for (const std::size_t b : worse[a]) {
        if (--betters[b] == 0) next.push_back(b);
      }
    }
    front = std::move(next);
  }
  return ranks;
}

std::vector<double> crowding_distances(std::span<const Objectives> front) {
  std::vector<double> distances(front.size(), 0);
  std::vector<std::size_t> order(front.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = 0; i < kObjectives && !front.empty(); ++i) {
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return front[a][i] < front[b][i]; });
    const double range = front[order.back()][i] - front[order.front()][i];
    distances[order.front()] = std::numeric_limits<double>::infinity();
    distances[order.back()] = std::numeric_limits<double>::infinity();
    if (range == 0) continue;
    for (std::size_t at = 1; at + 1 < order.size(); ++at) {
      distances[order[at]] += (front[order[at + 1]][i] - front[order[at - 1]][i]) / range;
    }
  }
  return distances;
}

double hypervolume(std::span<const Objectives> points, const Objectives& reference) {
  std::vector<Objectives> inside;
  for (const Objectives& point : points) {
    if (point[0] < reference[0] && point[1] < reference[1] && point[2] < reference[2]) {
      inside.push_back(point);
    }
  }
  std::sort(inside.begin(), inside.end(),
            [](const Objectives& a, const Objectives& b) { return a[2] < b[2]; });
  // From one point's third objective to the next one's, the area that the points so far dominate.
  double volume = 0;
  std::vector<Objectives> so_far;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    so_far.push_back(inside[i]);
    const double end = i + 1 < inside.size() ? inside[i + 1][2] : reference[2];
    if (end > inside[i][2]) volume += area(so_far, reference) * (end - inside[i][2]);
  }
  return volume;
}

}  // namespace kvreplay
