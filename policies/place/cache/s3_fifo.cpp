#include <algorithm>

#include "policies/place/cache/support/bounded.hpp"
#include "policies/place/cache/support/queues.hpp"

namespace kvreplay {
namespace {

/// A node's mark counts the hits since it entered its queue.
class S3Fifo final : public BoundedCache {
 public:
  S3Fifo(const Arguments& arguments, const Context& context)
      : BoundedCache(arguments, context),
        small_limit_(std::max<std::int64_t>(1, capacity().share(arguments.real("small_share")))),
        promotion_hits_(arguments.integer("promotion_hits")),
        held_(context.streams, 2),
        ghosts_(context.streams, capacity().share(arguments.real("ghost_share"))) {}

 private:
  static constexpr int kSmall = 0;
  static constexpr int kMain = 1;
  static constexpr std::int64_t kMaxHits = 3;  // two bits

  void on_hit(GroupKey key) override { ++held_.node(held_.find(key)).mark; }
  void on_newcomer(GroupKey key, std::int64_t, bool) override { was_ghost_ = ghosts_.take(key); }
  void insert(GroupKey key, std::int64_t weight) override {
    const bool filling = !has_evicted_ && held_.weight(kSmall) >= small_limit_;
    held_.push_front(was_ghost_ || filling ? kMain : kSmall, key, weight);
  }
  void evict() override {
    has_evicted_ = true;
    for (;;) {
      const bool main =
          held_.weight(kMain) > capacity().limit - small_limit_ || held_.empty(kSmall);
      if (main ? evict_from_main() : evict_from_small()) return;
    }
  }
  void remove(GroupKey key) override { held_.erase(held_.find(key)); }
  void on_change(GroupKey key, std::int64_t weight) override {
    held_.set_weight(held_.find(key), weight);
  }

  /// Returns false when every group that was there has moved to the main queue.
  bool evict_from_small() {
    while (!held_.empty(kSmall)) {
      const GroupQueues::Index index = held_.back(kSmall);
      if (held_.node(index).mark >= promotion_hits_) {
        held_.move_front(kMain, index);
        held_.node(index).mark = 0;
        continue;
      }
      ghosts_.add(held_.node(index).key, held_.node(index).weight);
      release(held_.pop_back(kSmall));
      return true;
    }
    return false;
  }
  bool evict_from_main() {
    for (;;) {
      const GroupQueues::Index index = held_.back(kMain);
      std::int64_t& hits = held_.node(index).mark;
      if (hits == 0) break;
      hits = std::min(hits, kMaxHits) - 1;
      held_.move_front(kMain, index);
    }
    release(held_.pop_back(kMain));
    return true;
  }

  std::int64_t small_limit_;
  std::int64_t promotion_hits_;
  bool has_evicted_ = false;
  bool was_ghost_ = false;  // of the newcomer
  GroupQueues held_;
  GhostQueue ghosts_;
};

const Registered<Cache> kS3Fifo({
    .name = "s3_fifo",
    .help = "a small FIFO queue before a main one, and a ghost queue of what left the small one",
    .source = "Yang et al., SOSP 2023; libCacheSim S3FIFO",
    .parameters = capacity_and(
        {real_parameter("small_share", "", 0.1, {0, 1},
                        "share of the capacity for the small queue"),
         real_parameter("ghost_share", "", 0.9, {0, 16},
                        "weight of the ghosts, as a share of the capacity"),
         integer_parameter("promotion_hits", "hits", 2, {1, 3},
                           "hits that move a group from the small queue to the main one")}),
    .make = make_cache<S3Fifo>,
});

}  // namespace
}  // namespace kvreplay
