#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "policies/place/cache/support/bounded.hpp"
#include "policies/place/cache/support/ranking.hpp"

namespace kvreplay {
namespace {

/// Histories are never dropped, not even those of groups that have left.
class LruK final : public BoundedCache {
 public:
  LruK(const Arguments& arguments, const Context& context)
      : BoundedCache(arguments, context),
        k_(static_cast<std::size_t>(arguments.integer("k"))),
        history_(context.streams, -1),
        ranking_(context.streams) {}

 private:
  using Rank = std::pair<std::int64_t, std::int64_t>;  // time of the k-th last access, of the last

  void on_hit(GroupKey key) override { ranking_.update(key, record(key)); }
  void on_newcomer(GroupKey key, std::int64_t, bool) override { newcomer_ = record(key); }
  void insert(GroupKey key, std::int64_t) override { ranking_.insert(key, newcomer_); }
  void evict() override { release(ranking_.pop()); }
  void remove(GroupKey key) override { ranking_.erase(key); }

  Rank record(GroupKey key) {
    std::int64_t at = history_.get(key);
    if (at < 0) {
      at = std::ssize(times_);
      history_.set(key, at);
      times_.resize(times_.size() + k_, kNever);
    }
    const auto first = times_.begin() + at;  // the last k accesses, oldest first
    std::rotate(first, first + 1, first + static_cast<std::ptrdiff_t>(k_));
    first[static_cast<std::ptrdiff_t>(k_) - 1] = ++now_;
    return {*first, now_};
  }

  static constexpr std::int64_t kNever = 0;  // before the first access, at time 1

  std::size_t k_;
  std::int64_t now_ = 0;
  KeyMap<std::int64_t> history_;  // where a group's k times begin
  std::vector<std::int64_t> times_;
  Rank newcomer_{};
  GroupRanking<Rank> ranking_;
};

const Registered<Cache> kLruK({
    .name = "lru_k",
    .help = "evicts the group whose k-th last access is oldest; those with fewer first, by LRU",
    .source = "O'Neil et al., SIGMOD 1993; no correlated period, unlimited history",
    .parameters = capacity_and({integer_parameter(
        "k", "accesses", 2, {1, 16}, "which of the last accesses counts: 2 = the last but one")}),
    .make = make_cache<LruK>,
});

}  // namespace
}  // namespace kvreplay
