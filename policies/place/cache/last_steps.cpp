#include "policies/place/cache/cache.hpp"
#include "policies/place/cache/support/queues.hpp"

namespace kvreplay {
namespace {

/// The queue is ordered by the last step that requested a group, with the latest in front. A node's
/// weight is the bytes of its group, and its mark is that step.
class LastSteps final : public Cache {
 public:
  LastSteps(const Arguments& arguments, const Context& context)
      : steps_(arguments.integer("steps")), queue_(context.streams, 1) {}

  bool access(const Access& access, std::span<const Token>) override {
    GroupQueues::Index index = queue_.find(access.key);
    const bool hit = index != GroupQueues::kNone;
    if (hit) {
      queue_.move_front(0, index);
    } else {
      index = queue_.push_front(0, access.key, access.bytes);
    }
    queue_.node(index).mark = now_;
    return hit;
  }
  void notify_resize(GroupKey key, std::int64_t bytes) override {
    const GroupQueues::Index index = queue_.find(key);
    if (index != GroupQueues::kNone) queue_.set_weight(index, bytes);
  }
  /// The new group counts as requested in this step, because only groups in use are split.
  void notify_split(GroupKey key, GroupKey from, std::int64_t bytes) override {
    if (contains(from)) queue_.node(queue_.push_front(0, key, bytes)).mark = now_;
  }
  void erase(GroupKey key) override {
    const GroupQueues::Index index = queue_.find(key);
    if (index != GroupQueues::kNone) queue_.erase(index);
  }
  void end_step() override {
    ++now_;
    while (!queue_.empty(0) && queue_.node(queue_.back(0)).mark < now_ - steps_) queue_.pop_back(0);
  }
  bool contains(GroupKey key) const override { return queue_.find(key) != GroupQueues::kNone; }
  std::int64_t used_bytes() const override { return queue_.weight(0); }

 private:
  std::int64_t steps_;
  std::int64_t now_ = 0;
  GroupQueues queue_;
};

const Registered<Cache> kLastSteps({
    .name = "last_steps",
    .help = "keeps the groups that the last steps requested, however many",
    .source = "ClusterKV IV-C",
    .parameters = {integer_parameter("steps", "steps", 1, {1, 1e6},
                                     "R: how many steps back the last request of a group may lie")},
    .make =
        [](const Arguments& arguments, const Cache::Context& context) {
          return std::make_unique<LastSteps>(arguments, context);
        },
});

}  // namespace
}  // namespace kvreplay
