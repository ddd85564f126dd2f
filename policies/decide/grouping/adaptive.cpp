#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/random.hpp"
#include "base/statistics.hpp"
#include "policies/decide/grouping/grouping.hpp"
#include "policies/decide/grouping/support/clusters.hpp"

namespace kvreplay {
namespace {

struct AdaptiveSettings {
  kernels::Metric metric{};
  std::int64_t clusters = 0;  ///< clusters of the prompt; 0 = by tokens_per_cluster
  std::int64_t tokens_per_cluster = 0;
  std::int64_t max_iterations = 0;
  double tau_quantile = 0;
  std::int64_t max_buffered_tokens = 0;
  bool delayed_split = true;
};

/// A live cluster, and the new keys that wait in memory until it is split with them.
struct Cluster {
  GroupId group = kNoGroup;
  Moments moments;
  std::vector<Token> waiting;
};

/// Clusters of the prompt's keys that stay narrow: a new key joins the nearest cluster unless that
/// would make its variance exceed the stream's threshold; then the cluster is split with the key.
/// A cluster on flash is split when a query next brings it into memory; its new keys wait there.
class Adaptive final : public Grouping {
 public:
  Adaptive(const AdaptiveSettings& settings, const Context& context)
      : settings_(settings),
        seed_(context.seed),
        dim_(context.shape.kv_heads * context.shape.head_dim) {}

  void add_prompt(const Entries& entries, Token begin, Token end, const Groups& groups,
                  EventSink& events) override {
    const std::int64_t count =
        prompt_clusters(settings_.clusters, end - begin, settings_.tokens_per_cluster);
    const Clusters found =
        cluster_tokens(entries, token_range(begin, end), k_means_options(count, seed_));
    work_ = found.work;
    // A given number of clusters does not grow with the prompt.
    if (settings_.clusters > 0) work_.flops += std::exchange(work_.square_flops, 0);
    std::vector<double> variances;
    for (const std::vector<Token>& members : found.members) {
      create(entries, members, groups, events);
      variances.push_back(clusters_.back().moments.variance());
    }
    std::sort(variances.begin(), variances.end());
    tau_ = variances.empty() ? std::numeric_limits<double>::infinity()
                             : percentile(variances, settings_.tau_quantile);
  }

  [[nodiscard]] PromptWork prompt_work() const override { return work_; }

  void add_token(const Entries& entries, Token token, std::span<const GroupId> selected,
                 const Groups& groups, EventSink& events) override {
    follow_evictions(entries, groups, events);
    if (clusters_.empty()) {
      create(entries, {&token, 1}, groups, events);
      return;
    }
    place(entries, token, selected, groups, events);
    for (const GroupId group : selected) {
      const auto cluster = find(group);
      if (cluster < std::ssize(clusters_) && !at(cluster).waiting.empty()) {
        split(entries, token, cluster, groups, events);
      }
    }
    if (waiting_tokens() >= settings_.max_buffered_tokens) {
      load_and_split(entries, token, groups, events);
    }
  }

 private:
  [[nodiscard]] Cluster& at(std::ptrdiff_t cluster) {
    return clusters_[static_cast<std::size_t>(cluster)];
  }
  /// The index of a live group in clusters_; clusters_.size() for any other group.
  [[nodiscard]] std::ptrdiff_t find(GroupId group) const {
    const auto found = std::lower_bound(
        clusters_.begin(), clusters_.end(), group,
        [](const Cluster& cluster, GroupId value) { return cluster.group < value; });
    const bool live = found != clusters_.end() && found->group == group;
    return (live ? found : clusters_.end()) - clusters_.begin();
  }
  [[nodiscard]] kernels::KMeansOptions k_means_options(std::int64_t clusters,
                                                       std::uint64_t seed) const {
    return {.metric = settings_.metric,
            .clusters = clusters,
            .max_iterations = settings_.max_iterations,
            .stop_when_stable = true,
            .seed = seed};
  }

  void create(const Entries& entries, std::span<const Token> members, const Groups& groups,
              EventSink& events) {
    const GroupId group = groups.count();
    events.on_event({EventKind::kCreated, group, kNoGroup, members});
    clusters_.push_back({group, Moments(entries, members), {}});
    centroids_.resize(clusters_.size() * static_cast<std::size_t>(dim_));
    set_centroid(std::ssize(clusters_) - 1);
  }

  void place(const Entries& entries, Token token, std::span<const GroupId> selected,
             const Groups& groups, EventSink& events) {
    const KeyRows row(entries, {&token, 1});
    const std::int32_t nearest = nearest_cluster(row, centroids_, settings_.metric);
    key_.resize(static_cast<std::size_t>(dim_));
    kernels::to_float(row.data(), key_.data(), dim_);
    Cluster& cluster = at(nearest);
    if (cluster.moments.variance_with(key_) <= tau_) {
      events.on_event({EventKind::kAppended, cluster.group, kNoGroup, {&token, 1}});
      cluster.moments.add(key_);
      set_centroid(nearest);
      return;
    }
    const bool in_memory = std::binary_search(selected.begin(), selected.end(), cluster.group);
    cluster.waiting.push_back(token);
    if (in_memory) return;  // add_token() will split it
    if (settings_.delayed_split) {
      events.on_event({EventKind::kBuffered, cluster.group, kNoGroup, {&token, 1}});
    } else {
      events.on_event({EventKind::kLoaded, cluster.group});
      split(entries, token, nearest, groups, events);
    }
  }

  /// The cluster takes the keys that wait for it; 2-means then divides it. The larger half keeps
  /// the group's number. Keys that 2-means cannot separate stay together.
  void split(const Entries& entries, Token now, std::ptrdiff_t which, const Groups& groups,
             EventSink& events) {
    const GroupId group = at(which).group;
    events.on_event({EventKind::kAppended, group, kNoGroup, at(which).waiting});
    at(which).waiting.clear();
    std::vector<Token> members = groups.members(group);
    std::sort(members.begin(), members.end());
    const std::uint64_t seed = Random::derive(
        Random::derive(seed_, static_cast<std::uint64_t>(now)), static_cast<std::uint64_t>(group));
    Clusters halves = cluster_tokens(entries, members, k_means_options(2, seed));
    if (halves.members.size() == 2) {
      std::stable_sort(halves.members.begin(), halves.members.end(),
                       [](const auto& a, const auto& b) { return a.size() > b.size(); });
      const std::vector<Token>& leaving = halves.members[1];
      const GroupId other = groups.count();
      events.on_event({EventKind::kSplit, group, other, leaving});
      clusters_.push_back({other, Moments(entries, leaving), {}});
      centroids_.resize(clusters_.size() * static_cast<std::size_t>(dim_));
      set_centroid(std::ssize(clusters_) - 1);
    }
    at(which).moments = Moments(entries, halves.members[0]);
    set_centroid(which);
  }

  void load_and_split(const Entries& entries, Token now, const Groups& groups, EventSink& events) {
    const auto fullest = std::max_element(
        clusters_.begin(), clusters_.end(),
        [](const Cluster& a, const Cluster& b) { return a.waiting.size() < b.waiting.size(); });
    events.on_event({EventKind::kLoaded, fullest->group});
    split(entries, now, fullest - clusters_.begin(), groups, events);
  }

  [[nodiscard]] std::int64_t waiting_tokens() const {
    std::int64_t tokens = 0;
    for (const Cluster& cluster : clusters_) tokens += std::ssize(cluster.waiting);
    return tokens;
  }

  void set_centroid(std::ptrdiff_t cluster) {
    float* to = centroids_.data() + cluster * dim_;
    for (const double element : at(cluster).moments.mean()) *to++ = static_cast<float>(element);
  }

  /// Retention may have evicted tokens since the last call. Tokens that wait for a cluster that is
  /// now empty are nowhere else, so they form a cluster of their own.
  void follow_evictions(const Entries& entries, const Groups& groups, EventSink& events) {
    for (std::ptrdiff_t i = std::ssize(clusters_) - 1; i >= 0; --i) {
      Cluster& cluster = at(i);
      groups.erase_evicted(cluster.waiting);
      const std::vector<Token>& members = groups.members(cluster.group);
      if (std::ssize(members) == cluster.moments.count()) continue;
      if (!members.empty()) {
        cluster.moments = Moments(entries, members);
        set_centroid(i);
        continue;
      }
      const std::vector<Token> waiting = std::move(cluster.waiting);
      clusters_.erase(clusters_.begin() + i);
      const auto centroid = centroids_.begin() + i * dim_;
      centroids_.erase(centroid, centroid + dim_);
      if (!waiting.empty()) create(entries, waiting, groups, events);
    }
  }

  AdaptiveSettings settings_;
  std::uint64_t seed_;
  std::int64_t dim_;
  PromptWork work_;
  double tau_ = 0;
  std::vector<Cluster> clusters_;  // one per live group
  std::vector<float> centroids_;   // [clusters, dim]
  std::vector<float> key_;
};

const Registered<Grouping> kAdaptive({
    .name = "adaptive",
    .help = "k-means clusters of the prompt's keys that are split when they grow too wide",
    .source = "DynaKV 3; the rule for the threshold is ours",
    .parameters =
        {metric_parameter("euclidean"),
         integer_parameter("tokens_per_cluster", "tokens", 32, {1, 1e6},
                           "one cluster of the prompt per this many tokens"),
         integer_parameter("clusters", "clusters", 0, {0, 1e6},
                           "clusters of the prompt; 0 = by tokens_per_cluster"),
         integer_parameter("max_iterations", "iterations", 20, {1, 10000},
                           "limit of Lloyd's iterations; it ends sooner when labels are stable"),
         real_parameter("tau_quantile", "", 0.9, {0, 1},
                        "the threshold is this quantile of the variances of the prompt's clusters"),
         flag_parameter(
             "delayed_split", true,
             "new keys wait in memory until their cluster is loaded; false: it is loaded "
             "at once"),
         integer_parameter(
             "max_buffered_tokens", "tokens", 16, {1, 1e6},
             "new keys that may wait, over all clusters of a stream; then the cluster "
             "with most of them is loaded and split")},
    .make =
        [](const Arguments& arguments, const Grouping::Context& context) {
          AdaptiveSettings settings;
          settings.metric = metric_of(arguments);
          settings.clusters = arguments.integer("clusters");
          settings.tokens_per_cluster = arguments.integer("tokens_per_cluster");
          settings.max_iterations = arguments.integer("max_iterations");
          settings.tau_quantile = arguments.real("tau_quantile");
          settings.max_buffered_tokens = arguments.integer("max_buffered_tokens");
          settings.delayed_split = arguments.flag("delayed_split");
          return std::make_unique<Adaptive>(settings, context);
        },
});

}  // namespace
}  // namespace kvreplay
