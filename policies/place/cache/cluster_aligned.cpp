#include <utility>

#include "policies/place/cache/support/bounded.hpp"
#include "policies/place/cache/support/queues.hpp"
#include "policies/place/cache/support/ranking.hpp"

namespace kvreplay {
namespace {

/// A held group either was updated recently or is ranked for eviction: by size and then last use,
/// or by the step of its last use and then size.
class ClusterAligned final : public BoundedCache {
 public:
  ClusterAligned(const Arguments& arguments, const Context& context)
      : BoundedCache(arguments, context),
        reserved_(capacity().share(arguments.real("updated_share"))),
        by_step_(arguments.text("order") == "step"),
        last_use_(context.streams, 0),
        updated_(context.streams, 1),
        ranking_(context.streams) {}

  void end_step() override {
    if (by_step_) ++now_;
  }

 private:
  using Rank = std::pair<std::int64_t, std::int64_t>;  // the lowest goes first

  void on_hit(GroupKey key) override {
    use(key);
    if (ranking_.contains(key)) ranking_.update(key, rank(key));
  }
  void on_newcomer(GroupKey, std::int64_t, bool requested) override { is_update_ = !requested; }
  void insert(GroupKey key, std::int64_t weight) override {
    use(key);
    if (is_update_) {
      protect(key, weight);
    } else {
      ranking_.insert(key, rank(key));
    }
  }
  void evict() override { release(ranking_.empty() ? updated_.pop_back(0) : ranking_.pop()); }
  void remove(GroupKey key) override { leave(key); }
  void on_change(GroupKey key, std::int64_t weight) override {
    leave(key);
    protect(key, weight);
  }

  [[nodiscard]] Rank rank(GroupKey key) const {
    const Rank by_size{-bytes_of(key), last_use_.get(key)};
    return by_step_ ? Rank{by_size.second, by_size.first} : by_size;
  }
  void use(GroupKey key) {
    if (!by_step_) ++now_;
    last_use_.set(key, now_);
  }
  void leave(GroupKey key) {
    if (ranking_.contains(key)) {
      ranking_.erase(key);
    } else {
      updated_.erase(updated_.find(key));
    }
  }
  void protect(GroupKey key, std::int64_t weight) {
    updated_.push_front(0, key, weight);
    while (updated_.weight(0) > reserved_) {
      const GroupKey oldest = updated_.pop_back(0);
      ranking_.insert(oldest, rank(oldest));
    }
  }

  std::int64_t reserved_;
  bool by_step_;
  std::int64_t now_ = 0;    // in steps or uses
  bool is_update_ = false;  // the newcomer
  KeyMap<std::int64_t> last_use_;
  GroupQueues updated_;
  GroupRanking<Rank> ranking_;
};

const Registered<Cache> kClusterAligned({
    .name = "cluster_aligned",
    .help = "evicts large clusters before small ones, except the most recently updated",
    .source = "DynaKV 5, cache replacement; the share and both orders are ours",
    .parameters =
        capacity_and({real_parameter("updated_share", "", 0.2, {0, 1},
                                     "share of the capacity for the clusters appended to or "
                                     "split most recently, whatever their size"),
                      choice_parameter("order", {"size", "step"}, "size",
                                       "size: the largest goes first, then the one "
                                       "used longest ago; step: the one last used in the "
                                       "earliest step goes first, then the largest")}),
    .make = make_cache<ClusterAligned>,
});

}  // namespace
}  // namespace kvreplay
