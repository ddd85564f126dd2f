#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include "policies/place/cache/support/bounded.hpp"
#include "policies/place/cache/support/ranking.hpp"

namespace kvreplay {
namespace {

/// An oracle: it sees the whole sequence of accesses beforehand.
class Belady final : public BoundedCache {
 public:
  Belady(const Arguments& arguments, const Context& context)
      : BoundedCache(arguments, context),
        always_keeps_(arguments.flag("always_keep")),
        first_(context.streams, kNever),
        ranking_(context.streams) {}

  bool needs_future() const override { return true; }
  void set_future_accesses(std::span<const Access> accesses) override {
    next_.assign(accesses.size(), kNever);
    for (std::size_t i = accesses.size(); i-- > 0;) {
      next_[i] = first_.get(accesses[i].key);
      first_.set(accesses[i].key, static_cast<std::int64_t>(i));
    }
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  void on_hit(GroupKey key) override { ranking_.update(key, next_access()); }
  /// A group just split off has not been requested yet: its first access lies ahead.
  void on_newcomer(GroupKey key, std::int64_t, bool requested) override {
    newcomer_ = requested ? next_access() : first_.get(key);
  }
  bool prefers_newcomer() const override {
    return always_keeps_ || newcomer_ < ranking_.lowest_rank();
  }
  void insert(GroupKey key, std::int64_t) override { ranking_.insert(key, newcomer_); }
  void evict() override { release(ranking_.pop()); }
  void remove(GroupKey key) override { ranking_.erase(key); }

  /// When the group being accessed is requested next.
  std::int64_t next_access() {
    if (now_ >= next_.size()) throw std::logic_error("an access that the oracle does not know");
    return next_[now_++];
  }

  bool always_keeps_;
  std::size_t now_ = 0;             // accesses so far
  std::vector<std::int64_t> next_;  // by access: the next one to the same group
  KeyMap<std::int64_t> first_;
  std::int64_t newcomer_ = 0;
  GroupRanking<std::int64_t, std::greater<>> ranking_;  // by next access; the furthest ranks lowest
};

const Registered<Cache> kBelady({
    .name = "belady",
    .help = "an oracle: evicts the group requested furthest ahead, or does not keep the newcomer",
    .source = "Belady, IBM Systems Journal 5(2), 1966; libCacheSim Belady with always_keep",
    .parameters = capacity_and({flag_parameter(
        "always_keep", false,
        "keep every newcomer, even one requested again later than all held groups")}),
    .make = make_cache<Belady>,
});

}  // namespace
}  // namespace kvreplay
