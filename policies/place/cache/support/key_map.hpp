#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "policies/place/cache/cache.hpp"

namespace kvreplay {

/// A value for each group of each stream. Groups are numbered densely, so this is one plain array
/// per stream, which grows as groups appear.
template <typename T>
class KeyMap {
 public:
  KeyMap(std::int64_t streams, T absent)
      : values_(static_cast<std::size_t>(streams)), absent_(absent) {}

  [[nodiscard]] T get(GroupKey key) const {
    const std::vector<T>& stream = values_[static_cast<std::size_t>(key.stream)];
    const auto group = static_cast<std::size_t>(key.group);
    return group < stream.size() ? stream[group] : absent_;
  }
  void set(GroupKey key, T value) {
    std::vector<T>& stream = values_[static_cast<std::size_t>(key.stream)];
    const auto group = static_cast<std::size_t>(key.group);
    if (group >= stream.size()) stream.resize(group + 1, absent_);
    stream[group] = value;
  }

 private:
  std::vector<std::vector<T>> values_;
  T absent_;
};

}  // namespace kvreplay
