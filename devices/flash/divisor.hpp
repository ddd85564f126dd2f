#pragma once

#include <bit>
#include <cstdint>

namespace kvreplay::flash {

/// A number that others are divided by again and again. Most sizes of a device are powers of two,
/// and a shift takes a fraction of a division's time.
class Divisor {
 public:
  /// At least 1.
  explicit Divisor(std::uint64_t value)
      : value_(value), shift_(std::has_single_bit(value) ? std::countr_zero(value) : kNoShift) {}

  /// It is a number, but for its division.
  operator std::uint64_t() const { return value_; }

  friend std::uint64_t operator/(std::uint64_t number, const Divisor& divisor) {
    return divisor.shift_ == kNoShift ? number / divisor.value_ : number >> divisor.shift_;
  }
  friend std::uint64_t operator%(std::uint64_t number, const Divisor& divisor) {
    return divisor.shift_ == kNoShift ? number % divisor.value_ : number & (divisor.value_ - 1);
  }

 private:
  static constexpr int kNoShift = -1;

  std::uint64_t value_;
  int shift_;
};

}  // namespace kvreplay::flash
