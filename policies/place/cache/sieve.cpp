#include "policies/place/cache/support/bounded.hpp"
#include "policies/place/cache/support/queues.hpp"

namespace kvreplay {
namespace {

/// A node's mark is set when its group has been requested since the hand last passed.
class Sieve final : public BoundedCache {
 public:
  Sieve(const Arguments& arguments, const Context& context)
      : BoundedCache(arguments, context), queue_(context.streams, 1) {}

 private:
  using Index = GroupQueues::Index;

  void on_hit(GroupKey key) override { queue_.node(queue_.find(key)).mark = 1; }
  void insert(GroupKey key, std::int64_t weight) override { queue_.push_front(0, key, weight); }
  void evict() override {
    Index index = hand_ == GroupQueues::kNone ? queue_.back(0) : hand_;
    while (queue_.node(index).mark != 0) {
      queue_.node(index).mark = 0;
      index = queue_.ahead(index);
      if (index == GroupQueues::kNone) index = queue_.back(0);
    }
    const GroupKey key = queue_.node(index).key;
    drop(index);
    release(key);
  }
  void remove(GroupKey key) override {
    const Index index = queue_.find(key);
    if (index == hand_) {
      drop(index);
    } else {
      queue_.erase(index);
    }
  }

  /// Moves the hand to the next group towards the front.
  void drop(Index index) {
    hand_ = queue_.ahead(index);
    queue_.erase(index);
  }

  GroupQueues queue_;
  Index hand_ = GroupQueues::kNone;
};

const Registered<Cache> kSieve({
    .name = "sieve",
    .help = "a FIFO queue whose hand evicts the first group not requested since it last passed",
    .source = "Zhang et al., NSDI 2024; libCacheSim Sieve",
    .parameters = capacity_and(),
    .make = make_cache<Sieve>,
});

}  // namespace
}  // namespace kvreplay
