#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace kvreplay {

/// A queue in a ring that only grows: it stops allocating once it has reached its maximum length.
/// (std::deque allocates and frees as it moves along, even at a constant length.)
template <typename T>
class Fifo {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T& front() { return ring_[head_]; }

  void push(const T& item) {
    if (size_ == ring_.size()) grow();
    ring_[(head_ + size_++) & (ring_.size() - 1)] = item;
  }
  void pop() {
    head_ = (head_ + 1) & (ring_.size() - 1);
    --size_;
  }

 private:
  void grow() {
    std::vector<T> larger(ring_.empty() ? 16 : 2 * ring_.size());  // a power of two
    for (std::size_t i = 0; i < size_; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
    ring_ = std::move(larger);
    head_ = 0;
  }

  std::vector<T> ring_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace kvreplay
