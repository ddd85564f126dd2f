#include "sim/tuning/search.hpp"

#include <algorithm>
#include <set>

namespace kvreplay {
namespace {

/// After this many draws in a row without a new composition, none is assumed to be left.
constexpr int kMaxDraws = 20000;

class Search {
 public:
  Search(const SearchSpace& space, const SearchOptions& options, const EvaluateAll& evaluate)
      : space_(space), options_(options), evaluate_(evaluate), random_(options.seed) {}

  std::vector<Evaluated> run(std::span<const Composition> starts) && {
    std::vector<Composition> first;
    for (const Composition& start : starts) {
      if (known_.insert(start).second) first.push_back(start);
    }
    evaluate(first, 0);
    std::int64_t left = options_.evaluations;
    for (std::int64_t generation = 1; left > 0 && !parents_.empty(); ++generation) {
      const std::vector<Composition> children =
          make_children(std::min(left, options_.population), generation == 1);
      if (children.empty()) break;
      left -= std::ssize(children);
      evaluate(children, generation);
    }
    return std::move(all_);
  }

 private:
  void evaluate(std::span<const Composition> compositions, std::int64_t generation) {
    const std::vector<std::optional<Score>> scores = evaluate_(compositions);
    for (std::size_t i = 0; i < compositions.size(); ++i) {
      if (!scores[i]) continue;
      parents_.push_back(all_.size());
      all_.push_back({compositions[i], generation, *scores[i]});
    }
    choose_parents();
  }

  /// Chooses the best of the old parents and the new compositions, in the order that tournaments
  /// use.
  void choose_parents() {
    std::vector<Score> scores;
    for (const std::size_t parent : parents_) scores.push_back(all_[parent].score);
    const std::vector<std::size_t> ranks = front_ranks(scores);
    const std::vector<double> distances = distances_within_fronts(scores, ranks);
    std::vector<std::size_t> order(parents_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return ranks[a] != ranks[b] ? ranks[a] < ranks[b] : distances[a] > distances[b];
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(options_.population)));
    for (std::size_t& i : order) i = parents_[i];
    parents_ = std::move(order);
  }

  static std::vector<double> distances_within_fronts(std::span<const Score> scores,
                                                     std::span<const std::size_t> ranks) {
    std::vector<double> distances(scores.size());
    const std::size_t fronts =
        ranks.empty() ? 0 : *std::max_element(ranks.begin(), ranks.end()) + 1;
    for (std::size_t rank = 0; rank < fronts; ++rank) {
      std::vector<std::size_t> members;
      std::vector<Objectives> objectives;
      for (std::size_t i = 0; i < scores.size(); ++i) {
        if (ranks[i] != rank) continue;
        members.push_back(i);
        objectives.push_back(scores[i].objectives);
      }
      const std::vector<double> of_front = crowding_distances(objectives);
      for (std::size_t i = 0; i < members.size(); ++i) distances[members[i]] = of_front[i];
    }
    return distances;
  }

  std::vector<Composition> make_children(std::int64_t count, bool spread) {
    std::vector<Composition> children;
    for (int draws = 0; std::ssize(children) < count && draws < kMaxDraws; ++draws) {
      Composition child = parent();
      if (random_.below(2) == 0) child = space_.cross(child, parent(), random_);
      // The first generation has few starts, so its children change more.
      const auto changes = static_cast<int>(1 + random_.below(spread ? 6 : 3));
      const auto accepted = space_.accept(space_.mutate(child, changes, random_));
      if (!accepted || !known_.insert(*accepted).second) continue;
      children.push_back(*accepted);
      draws = 0;
    }
    return children;
  }

  /// The winner of a tournament: parents_ is ordered by rank and distance.
  const Composition& parent() {
    const std::uint64_t one = random_.below(parents_.size());
    const std::uint64_t other = random_.below(parents_.size());
    return all_[parents_[std::min(one, other)]].composition;
  }

  const SearchSpace& space_;
  const SearchOptions& options_;
  const EvaluateAll& evaluate_;
  Random random_;
  std::vector<Evaluated> all_;
  std::vector<std::size_t> parents_;  ///< indices in all_, best first
  std::set<Composition> known_;
};

}  // namespace

std::vector<Evaluated> search(const SearchSpace& space, std::span<const Composition> starts,
                              const SearchOptions& options, const EvaluateAll& evaluate) {
  return Search(space, options, evaluate).run(starts);
}

}  // namespace kvreplay
