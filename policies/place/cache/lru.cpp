#include "policies/place/cache/support/bounded.hpp"
#include "policies/place/cache/support/queues.hpp"

namespace kvreplay {
namespace {

class Lru final : public BoundedCache {
 public:
  Lru(const Arguments& arguments, const Context& context)
      : BoundedCache(arguments, context), queue_(context.streams, 1) {}

 private:
  void on_hit(GroupKey key) override { queue_.move_front(0, queue_.find(key)); }
  void insert(GroupKey key, std::int64_t weight) override { queue_.push_front(0, key, weight); }
  void evict() override { release(queue_.pop_back(0)); }
  void remove(GroupKey key) override { queue_.erase(queue_.find(key)); }

  GroupQueues queue_;
};

const Registered<Cache> kLru({
    .name = "lru",
    .help = "evicts the group requested longest ago",
    .source = "libCacheSim LRU",
    .parameters = capacity_and(),
    .make = make_cache<Lru>,
});

}  // namespace
}  // namespace kvreplay
