#include <utility>

#include "policies/place/cache/support/bounded.hpp"
#include "policies/place/cache/support/ranking.hpp"

namespace kvreplay {
namespace {

class Lfu final : public BoundedCache {
 public:
  Lfu(const Arguments& arguments, const Context& context)
      : BoundedCache(arguments, context), ranking_(context.streams) {}

 private:
  using Rank = std::pair<std::int64_t, std::int64_t>;  // accesses while held, time of the last

  void on_hit(GroupKey key) override {
    ranking_.update(key, {ranking_.rank(key).first + 1, ++now_});
  }
  void insert(GroupKey key, std::int64_t) override { ranking_.insert(key, {1, ++now_}); }
  void evict() override { release(ranking_.pop()); }
  void remove(GroupKey key) override { ranking_.erase(key); }

  std::int64_t now_ = 0;
  GroupRanking<Rank> ranking_;
};

const Registered<Cache> kLfu({
    .name = "lfu",
    .help =
        "evicts the group requested least often since it came in, then the one used longest ago",
    .source = "libCacheSim LFU",
    .parameters = capacity_and(),
    .make = make_cache<Lfu>,
});

}  // namespace
}  // namespace kvreplay
