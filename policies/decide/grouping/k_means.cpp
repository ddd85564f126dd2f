#include <algorithm>
#include <utility>

#include "base/random.hpp"
#include "policies/decide/grouping/grouping.hpp"
#include "policies/decide/grouping/support/clusters.hpp"

namespace kvreplay {
namespace {

enum class Update { kStatic, kLocal };

struct KMeansSettings {
  kernels::Metric metric{};
  std::int64_t clusters = 0;  ///< clusters of the prompt; 0 = by tokens_per_cluster
  std::int64_t tokens_per_cluster = 0;
  std::int64_t max_iterations = 0;
  Update update{};
  std::int64_t window_tokens = 0;
  std::int64_t window_clusters = 0;
};

/// Clusters of the prompt's keys. New tokens join the nearest cluster, or wait in memory until a
/// window of them is clustered by itself.
class KMeans final : public Grouping {
 public:
  KMeans(const KMeansSettings& settings, std::uint64_t seed) : settings_(settings), seed_(seed) {}

  void add_prompt(const Entries& entries, Token begin, Token end, const Groups& groups,
                  EventSink& events) override {
    if (begin == end) return;
    const std::int64_t count =
        prompt_clusters(settings_.clusters, end - begin, settings_.tokens_per_cluster);
    work_ = cluster(entries, begin, end, count, groups, events);
    // A given number of clusters does not grow with the prompt.
    if (settings_.clusters > 0) work_.flops += std::exchange(work_.square_flops, 0);
  }
  [[nodiscard]] PromptWork prompt_work() const override { return work_; }

  void add_token(const Entries& entries, Token token, std::span<const GroupId>,
                 const Groups& groups, EventSink& events) override {
    if (settings_.update == Update::kStatic && !centroids_.empty()) {
      // The static update: the prompt's centroids do not change.
      join_nearest(entries, token, 0, settings_.metric, centroids_, groups, events);
    } else {
      wait(entries, token, groups, events);
    }
  }

 private:
  void wait(const Entries& entries, Token token, const Groups& groups, EventSink& events) {
    if (waiting_ == 0) first_waiting_ = token;
    if (++waiting_ < settings_.window_tokens) {
      events.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, {&token, 1}});
      return;
    }
    waiting_ = 0;
    cluster(entries, first_waiting_, token + 1, settings_.window_clusters, groups, events);
  }

  PromptWork cluster(const Entries& entries, Token begin, Token end, std::int64_t count,
                     const Groups& groups, EventSink& events) {
    Clusters clusters =
        cluster_tokens(entries, token_range(begin, end),
                       {.metric = settings_.metric,
                        .clusters = count,
                        .max_iterations = settings_.max_iterations,
                        .stop_when_stable = true,
                        .seed = Random::derive(seed_, static_cast<std::uint64_t>(begin))});
    for (std::vector<Token>& members : clusters.members) {
      groups.erase_evicted(members);
      if (members.empty()) continue;
      const GroupId group = groups.count();
      events.on_event({EventKind::kCreated, group, kNoGroup, members});
      if (settings_.update == Update::kLocal) events.on_event({EventKind::kSealed, group});
    }
    if (settings_.update == Update::kStatic) centroids_ = std::move(clusters.centroids);
    return clusters.work;
  }

  KMeansSettings settings_;
  std::uint64_t seed_;
  std::vector<float> centroids_;  // of all groups, for the static update
  Token first_waiting_ = 0;
  PromptWork work_;
  std::int64_t waiting_ = 0;  // tokens [first_waiting_, first_waiting_ + waiting_)
};

const Registered<Grouping> kKMeans({
    .name = "k_means",
    .help = "k-means clusters of the prompt's keys, with a static or a local update",
    .source = "ClusterKV (Liu et al., 2025), sections III-B and III-C; static update as in PQCache",
    .parameters =
        {metric_parameter("cosine"),
         integer_parameter("tokens_per_cluster", "tokens", 80, {1, 1e6},
                           "one cluster of the prompt per this many tokens"),
         integer_parameter("clusters", "clusters", 0, {0, 1e6},
                           "clusters of the prompt; 0 = by tokens_per_cluster"),
         integer_parameter("max_iterations", "iterations", 20, {1, 10000},
                           "limit of Lloyd's iterations; it ends sooner when labels are stable"),
         choice_parameter(
             "update", {"static", "local"}, "local",
             "static: a new token joins the nearest cluster of the prompt; local: each "
             "window of new tokens is clustered by itself"),
         integer_parameter("window_tokens", "tokens", 320, {1, 1e6},
                           "local: new tokens that wait in memory for a clustering of their own"),
         integer_parameter("window_clusters", "clusters", 4, {1, 1e6},
                           "local: clusters per such window")},
    .make =
        [](const Arguments& arguments, const Grouping::Context& context) {
          KMeansSettings settings;
          settings.metric = metric_of(arguments);
          settings.clusters = arguments.integer("clusters");
          settings.tokens_per_cluster = arguments.integer("tokens_per_cluster");
          settings.max_iterations = arguments.integer("max_iterations");
          settings.update = arguments.text("update") == "static" ? Update::kStatic : Update::kLocal;
          settings.window_tokens = arguments.integer("window_tokens");
          settings.window_clusters = arguments.integer("window_clusters");
          return std::make_unique<KMeans>(settings, context.seed);
        },
});

}  // namespace
}  // namespace kvreplay
