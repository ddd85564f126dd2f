#pragma once

#include <cstdint>

namespace kvreplay {

/// A mean that can be combined from parts.
struct Mean {
  double sum = 0;
  std::int64_t count = 0;

  void add(double value) {
    sum += value;
    ++count;
  }
  Mean& operator+=(const Mean& other) {
    sum += other.sum;
    count += other.count;
    return *this;
  }
  /// 0 when there are no values.
  [[nodiscard]] double value() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

}  // namespace kvreplay
