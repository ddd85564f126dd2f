#include "policies/place/cache/support/bounded.hpp"
#include "policies/place/cache/support/queues.hpp"

namespace kvreplay {
namespace {

class Fifo final : public BoundedCache {
 public:
  Fifo(const Arguments& arguments, const Context& context)
      : BoundedCache(arguments, context), queue_(context.streams, 1) {}

 private:
  void on_hit(GroupKey) override {}
  void insert(GroupKey key, std::int64_t weight) override { queue_.push_front(0, key, weight); }
  void evict() override { release(queue_.pop_back(0)); }
  void remove(GroupKey key) override { queue_.erase(queue_.find(key)); }

  GroupQueues queue_;
};

const Registered<Cache> kFifo({
    .name = "fifo",
    .help = "evicts the group held longest; KVSwap's reuse buffer",
    .source = "KVSwap 4.4; libCacheSim FIFO",
    .parameters = capacity_and(),
    .make = make_cache<Fifo>,
});

}  // namespace
}  // namespace kvreplay
