#include <algorithm>

#include "base/random.hpp"
#include "policies/decide/grouping/grouping.hpp"
#include "policies/decide/grouping/support/clusters.hpp"

namespace kvreplay {
namespace {

struct GlobalSettings {
  kernels::Metric metric{};
  std::int64_t tokens_per_cluster = 0;
  std::int64_t max_iterations = 0;
  std::int64_t period_tokens = 0;
};

/// k-means over all keys, repeated at a fixed token interval: shows what an index that is always up
/// to date would be worth. Every cluster is read and written for it. In between, a new token joins
/// the nearest cluster.
class Global final : public Grouping {
 public:
  Global(const GlobalSettings& settings, std::uint64_t seed) : settings_(settings), seed_(seed) {}

  void add_prompt(const Entries& entries, Token begin, Token end, const Groups& groups,
                  EventSink& events) override {
    work_ = cluster(entries, token_range(begin, end), groups, events);
  }
  [[nodiscard]] PromptWork prompt_work() const override { return work_; }

  void add_token(const Entries& entries, Token token, std::span<const GroupId>,
                 const Groups& groups, EventSink& events) override {
    if (++taken_ % settings_.period_tokens != 0 && !centroids_.empty()) {
      join_nearest(entries, token, first_, settings_.metric, centroids_, groups, events);
      return;
    }
    std::vector<Token> tokens{token};
    for (GroupId group = first_; group < groups.count(); ++group) {
      if (!groups.live(group)) continue;
      tokens.insert(tokens.end(), groups.members(group).begin(), groups.members(group).end());
      events.on_event({EventKind::kLoaded, group});
      events.on_event({EventKind::kDissolved, group});
    }
    std::sort(tokens.begin(), tokens.end());
    cluster(entries, tokens, groups, events);
  }

 private:
  PromptWork cluster(const Entries& entries, std::span<const Token> tokens, const Groups& groups,
                     EventSink& events) {
    const std::int64_t count = prompt_clusters(0, std::ssize(tokens), settings_.tokens_per_cluster);
    Clusters found =
        cluster_tokens(entries, tokens,
                       {.metric = settings_.metric,
                        .clusters = count,
                        .max_iterations = settings_.max_iterations,
                        .stop_when_stable = true,
                        .seed = Random::derive(seed_, static_cast<std::uint64_t>(taken_))});
    first_ = groups.count();
    for (const std::vector<Token>& members : found.members) {
      events.on_event({EventKind::kCreated, groups.count(), kNoGroup, members});
    }
    centroids_ = std::move(found.centroids);
    return found.work;
  }

  GlobalSettings settings_;
  std::uint64_t seed_;
  PromptWork work_;
  std::int64_t taken_ = 0;        // decode steps
  GroupId first_ = 0;             // first group of the latest clustering
  std::vector<float> centroids_;  // of those groups
};

const Registered<Grouping> kGlobal({
    .name = "global",
    .help = "k-means clusters of all keys, recomputed at a fixed token interval: an upper bound",
    .source = "ours: the reference for DynaKV 3's adaptive update",
    .parameters = {metric_parameter("euclidean"),
                   integer_parameter("tokens_per_cluster", "tokens", 32, {1, 1e6},
                                     "one cluster per this many tokens"),
                   integer_parameter(
                       "max_iterations", "iterations", 20, {1, 10000},
                       "limit of Lloyd's iterations; it ends sooner when labels are stable"),
                   integer_parameter("period_tokens", "tokens", 64, {1, 1e6},
                                     "new tokens between two clusterings")},
    .make =
        [](const Arguments& arguments, const Grouping::Context& context) {
          GlobalSettings settings;
          settings.metric = metric_of(arguments);
          settings.tokens_per_cluster = arguments.integer("tokens_per_cluster");
          settings.max_iterations = arguments.integer("max_iterations");
          settings.period_tokens = arguments.integer("period_tokens");
          return std::make_unique<Global>(settings, context.seed);
        },
});

}  // namespace
}  // namespace kvreplay
