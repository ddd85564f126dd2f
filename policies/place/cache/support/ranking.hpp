#pragma once

#include <cassert>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "policies/place/cache/support/key_map.hpp"

namespace kvreplay {

/// Groups by rank: a binary heap with the lowest rank on top. A group's rank may change. Equal
/// ranks are taken in ascending order of key.
template <typename Rank, typename Less = std::less<Rank>>
class GroupRanking {
 public:
  explicit GroupRanking(std::int64_t streams, Less less = {})
      : at_(streams, kNone), less_(std::move(less)) {}

  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] bool contains(GroupKey key) const { return at_.get(key) != kNone; }
  [[nodiscard]] GroupKey lowest() const { return heap_.front().key; }
  [[nodiscard]] const Rank& lowest_rank() const { return heap_.front().rank; }
  [[nodiscard]] const Rank& rank(GroupKey key) const { return heap_[slot(key)].rank; }

  void insert(GroupKey key, Rank rank) {
    assert(!contains(key));
    heap_.push_back({std::move(rank), key});
    settle(heap_.size() - 1);
  }
  void update(GroupKey key, Rank rank) {
    heap_[slot(key)].rank = std::move(rank);
    settle(slot(key));
  }
  void erase(GroupKey key) {
    const std::size_t hole = slot(key);
    at_.set(key, kNone);
    Item last = std::move(heap_.back());
    heap_.pop_back();
    if (hole == heap_.size()) return;
    heap_[hole] = std::move(last);
    settle(hole);
  }
  /// Erases the lowest group of a ranking, which must not be empty.
  GroupKey pop() {
    const GroupKey key = lowest();
    erase(key);
    return key;
  }

 private:
  static constexpr std::int32_t kNone = -1;
  struct Item {
    Rank rank;
    GroupKey key;
  };

  [[nodiscard]] std::size_t slot(GroupKey key) const {
    assert(contains(key));
    return static_cast<std::size_t>(at_.get(key));
  }
  [[nodiscard]] bool before(const Item& a, const Item& b) const {
    if (less_(a.rank, b.rank)) return true;
    return !less_(b.rank, a.rank) && a.key < b.key;
  }
  void put(std::size_t index, Item item) {
    at_.set(item.key, static_cast<std::int32_t>(index));
    heap_[index] = std::move(item);
  }
  /// Restores the order after the item at `index` has changed.
  void settle(std::size_t index) {
    Item item = std::move(heap_[index]);
    while (index > 0 && before(item, heap_[(index - 1) / 2])) {
      put(index, std::move(heap_[(index - 1) / 2]));
      index = (index - 1) / 2;
    }
    for (;;) {
      std::size_t child = 2 * index + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], item)) break;
      put(index, std::move(heap_[child]));
      index = child;
    }
    put(index, std::move(item));
  }

  KeyMap<std::int32_t> at_;
  std::vector<Item> heap_;
  Less less_;
};

}  // namespace kvreplay
