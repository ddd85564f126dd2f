#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "policies/place/cache/support/key_map.hpp"

namespace kvreplay {

/// Doubly linked queues of groups. A group is in at most one of them. Nodes are recycled, so
/// nothing is allocated once the queues have reached their largest size.
class GroupQueues {
 public:
  using Index = std::int32_t;
  static constexpr Index kNone = -1;

  struct Node {
    GroupKey key;
    std::int64_t weight = 0;
    std::int64_t mark = 0;  ///< for the policy: visits, a reference bit or a step; starts at 0
    int queue = 0;
    Index to_front = kNone;
    Index to_back = kNone;
  };

  GroupQueues(std::int64_t streams, int queues)
      : index_(streams, kNone), ends_(static_cast<std::size_t>(queues)) {}

  [[nodiscard]] Index find(GroupKey key) const { return index_.get(key); }
  [[nodiscard]] Node& node(Index index) { return nodes_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const Node& node(Index index) const {
    return nodes_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] Index back(int queue) const { return end(queue).back; }
  [[nodiscard]] bool empty(int queue) const { return end(queue).back == kNone; }
  /// The neighbour towards the front, or kNone.
  [[nodiscard]] Index ahead(Index index) const { return node(index).to_front; }
  /// Sum of the weights in a queue.
  [[nodiscard]] std::int64_t weight(int queue) const { return end(queue).weight; }

  Index push_front(int queue, GroupKey key, std::int64_t weight) {
    assert(find(key) == kNone);
    Index index = free_;
    if (index == kNone) {
      index = static_cast<Index>(nodes_.size());
      nodes_.emplace_back();
    } else {
      free_ = node(index).to_back;
    }
    node(index) = {key, weight, 0, queue, kNone, kNone};
    index_.set(key, index);
    link(index);
    return index;
  }
  /// Moves a node to the front of a queue, its own or another.
  void move_front(int queue, Index index) {
    unlink(index);
    node(index).queue = queue;
    link(index);
  }
  void set_weight(Index index, std::int64_t weight) {
    Node& changed = node(index);
    end(changed.queue).weight += weight - changed.weight;
    changed.weight = weight;
  }
  void erase(Index index) {
    unlink(index);
    index_.set(node(index).key, kNone);
    node(index).to_back = free_;
    free_ = index;
  }
  /// Erases the last node of a queue, which must not be empty.
  GroupKey pop_back(int queue) {
    const Index index = back(queue);
    const GroupKey key = node(index).key;
    erase(index);
    return key;
  }

 private:
  struct End {
    Index front = kNone;
    Index back = kNone;
    std::int64_t weight = 0;
  };

  [[nodiscard]] End& end(int queue) { return ends_[static_cast<std::size_t>(queue)]; }
  [[nodiscard]] const End& end(int queue) const { return ends_[static_cast<std::size_t>(queue)]; }

  void link(Index index) {
    Node& added = node(index);
    End& queue = end(added.queue);
    added.to_front = kNone;
    added.to_back = queue.front;
    (queue.front == kNone ? queue.back : node(queue.front).to_front) = index;
    queue.front = index;
    queue.weight += added.weight;
  }
  void unlink(Index index) {
    const Node& gone = node(index);
    End& queue = end(gone.queue);
    (gone.to_front == kNone ? queue.front : node(gone.to_front).to_back) = gone.to_back;
    (gone.to_back == kNone ? queue.back : node(gone.to_back).to_front) = gone.to_front;
    queue.weight -= gone.weight;
  }

  KeyMap<Index> index_;
  std::vector<Node> nodes_;
  std::vector<End> ends_;
  Index free_ = kNone;  // chained by to_back
};

/// Names of groups that left a cache: the latest ones whose weights together fit a limit.
class GhostQueue {
 public:
  GhostQueue(std::int64_t streams, std::int64_t limit) : limit_(limit), queue_(streams, 1) {}

  /// Removes the group. Returns whether it was there.
  bool take(GroupKey key) {
    const GroupQueues::Index index = queue_.find(key);
    if (index == GroupQueues::kNone) return false;
    queue_.erase(index);
    return true;
  }
  void add(GroupKey key, std::int64_t weight) {
    if (weight > limit_) return;
    while (queue_.weight(0) + weight > limit_) queue_.pop_back(0);
    queue_.push_front(0, key, weight);
  }

 private:
  std::int64_t limit_;
  GroupQueues queue_;
};

}  // namespace kvreplay
