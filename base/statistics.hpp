// By hand: the standard library has neither mean, median nor percentile.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

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

/// For an even number of values, the mean of the middle two; 0 for none.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// The rank of a percentile among `count` ascending values, from 1: the first value that at least
/// `share` of the values do not exceed ("nearest rank"). At least 1.
[[nodiscard]] inline std::uint64_t percentile_rank(std::uint64_t count, double share) {
  // A little less, because 0.999 * 1000 may be more than 999 in binary.
  const double rank = std::ceil(share * static_cast<double>(count) * (1 - 1e-14));
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(rank), 1);
}

/// The value of that rank, as latencies are reported. It is always one of the values, so
/// percentile(0.5) is not the median where their number is even. Zero for no values.
template <typename Value>
[[nodiscard]] Value percentile(const std::vector<Value>& ascending, double share) {
  if (ascending.empty()) return Value{};
  return ascending[static_cast<std::size_t>(percentile_rank(ascending.size(), share)) - 1];
}

/// The same of values that are not in order, for shares that are requested in ascending order. Each
/// is selected among those above the one before; nothing is sorted. It moves the values, which
/// outlive it.
template <typename Value>
class AscendingPercentiles {
 public:
  explicit AscendingPercentiles(std::vector<Value>& values)
      : values_(values), left_(values.begin()) {}

  [[nodiscard]] Value operator()(double share) {
    if (values_.empty()) return Value{};
    const auto rank = static_cast<std::ptrdiff_t>(percentile_rank(values_.size(), share));
    const auto found = values_.begin() + (rank - 1);
    std::nth_element(left_, found, values_.end());
    left_ = found;
    return *found;
  }

 private:
  std::vector<Value>& values_;
  typename std::vector<Value>::iterator left_;
};

}  // namespace kvreplay
