#include "policies/place/cache/support/bounded.hpp"
#include "policies/place/cache/support/queues.hpp"

namespace kvreplay {
namespace {

/// The paper's full version: A1in (FIFO), A1out (FIFO of ghosts), Am (LRU).
class TwoQ final : public BoundedCache {
 public:
  TwoQ(const Arguments& arguments, const Context& context)
      : BoundedCache(arguments, context),
        in_limit_(capacity().share(arguments.real("in_share"))),
        held_(context.streams, 2),
        ghosts_(context.streams, capacity().share(arguments.real("out_share"))) {}

 private:
  static constexpr int kIn = 0;
  static constexpr int kMain = 1;

  void on_hit(GroupKey key) override {
    const GroupQueues::Index index = held_.find(key);
    if (held_.node(index).queue == kMain) held_.move_front(kMain, index);
  }
  void on_newcomer(GroupKey key, std::int64_t, bool) override { was_ghost_ = ghosts_.take(key); }
  void insert(GroupKey key, std::int64_t weight) override {
    if (!was_ghost_) {
      held_.push_front(kIn, key, weight);
      return;
    }
    const std::int64_t main_limit = capacity().limit - in_limit_;
    while (!held_.empty(kMain) && held_.weight(kMain) + weight > main_limit) {
      release(held_.pop_back(kMain));
    }
    held_.push_front(kMain, key, weight);
  }
  void evict() override {
    if (held_.weight(kIn) <= in_limit_ && !held_.empty(kMain)) {
      release(held_.pop_back(kMain));
      return;
    }
    const GroupQueues::Node& oldest = held_.node(held_.back(kIn));
    ghosts_.add(oldest.key, oldest.weight);
    release(held_.pop_back(kIn));
  }
  void remove(GroupKey key) override { held_.erase(held_.find(key)); }
  void on_change(GroupKey key, std::int64_t weight) override {
    held_.set_weight(held_.find(key), weight);
  }

  std::int64_t in_limit_;
  bool was_ghost_ = false;  // of the newcomer
  GroupQueues held_;
  GhostQueue ghosts_;
};

const Registered<Cache> kTwoQ({
    .name = "two_q",
    .help =
        "a FIFO queue for newcomers, and an LRU list for groups requested soon after leaving it",
    .source = "Johnson and Shasha, VLDB 1994; libCacheSim TwoQ",
    .parameters = capacity_and(
        {real_parameter("in_share", "", 0.25, {0, 1}, "share of the capacity for newcomers"),
         real_parameter("out_share", "", 0.5, {0, 16},
                        "weight of the ghosts, as a share of the capacity")}),
    .make = make_cache<TwoQ>,
});

}  // namespace
}  // namespace kvreplay
