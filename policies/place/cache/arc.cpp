#include <algorithm>

#include "policies/place/cache/support/bounded.hpp"
#include "policies/place/cache/support/queues.hpp"

namespace kvreplay {
namespace {

/// The paper's T1 (groups requested once) and T2 (more than once), and the ghosts B1 and B2 of
/// groups that left them. `target_` is the paper's p, the weight that T1 should have.
class Arc final : public BoundedCache {
 public:
  Arc(const Arguments& arguments, const Context& context)
      : BoundedCache(arguments, context), held_(context.streams, 2), ghosts_(context.streams, 2) {}

 private:
  static constexpr int kOnce = 0;
  static constexpr int kOften = 1;
  static constexpr int kUnknown = -1;

  void on_hit(GroupKey key) override { held_.move_front(kOften, held_.find(key)); }

  void on_newcomer(GroupKey key, std::int64_t weight, bool) override {
    newcomer_weight_ = weight;
    const GroupQueues::Index ghost = ghosts_.find(key);
    left_ = ghost == GroupQueues::kNone ? kUnknown : ghosts_.node(ghost).queue;
    if (left_ == kUnknown) return;
    const auto once = static_cast<double>(ghosts_.weight(kOnce));
    const auto often = static_cast<double>(ghosts_.weight(kOften));
    const double step =
        static_cast<double>(weight) * std::max(left_ == kOnce ? often / once : once / often, 1.0);
    target_ = std::clamp(left_ == kOnce ? target_ + step : target_ - step, 0.0,
                         static_cast<double>(capacity().limit));
    ghosts_.erase(ghost);
  }

  void insert(GroupKey key, std::int64_t weight) override {
    held_.push_front(left_ == kUnknown ? kOnce : kOften, key, weight);
    newcomer_weight_ = 0;
  }

  void evict() override {
    if (left_ == kUnknown && newcomer_weight_ > 0) {
      const auto once = [&] { return held_.weight(kOnce) + ghosts_.weight(kOnce); };
      const auto often = [&] { return held_.weight(kOften) + ghosts_.weight(kOften); };
      if (once() + newcomer_weight_ > capacity().limit) {
        if (held_.weight(kOnce) >= capacity().limit) {
          release(held_.pop_back(kOnce));
          return;
        }
        while (once() + newcomer_weight_ > capacity().limit && !ghosts_.empty(kOnce)) {
          ghosts_.pop_back(kOnce);
        }
      } else {
        while (once() + often() >= 2 * capacity().limit && !ghosts_.empty(kOften)) {
          ghosts_.pop_back(kOften);
        }
      }
    }
    const auto once = static_cast<double>(held_.weight(kOnce));
    const bool from_once =
        held_.empty(kOften) || once > target_ || (once == target_ && once > 0 && left_ == kOften);
    turn_into_ghost(from_once ? kOnce : kOften);
  }

  void remove(GroupKey key) override { held_.erase(held_.find(key)); }
  void on_change(GroupKey key, std::int64_t weight) override {
    held_.set_weight(held_.find(key), weight);
  }

  void turn_into_ghost(int queue) {
    const GroupQueues::Node gone = held_.node(held_.back(queue));
    held_.pop_back(queue);
    release(gone.key);
    ghosts_.push_front(queue, gone.key, gone.weight);
  }

  double target_ = 0;
  std::int64_t newcomer_weight_ = 0;  // 0 when room is made for a group that grew
  int left_ = kUnknown;               // the queue whose ghosts held the newcomer
  GroupQueues held_;
  GroupQueues ghosts_;
};

const Registered<Cache> kArc({
    .name = "arc",
    .help = "balances groups requested once against groups requested often, guided by their ghosts",
    .source = "Megiddo and Modha, FAST 2003; libCacheSim ARC",
    .parameters = capacity_and(),
    .make = make_cache<Arc>,
});

}  // namespace
}  // namespace kvreplay
