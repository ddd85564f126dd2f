#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace kvreplay {

/// A list of sets of numbers, each kept as its runs of consecutive numbers: a set that is one run
/// ("all tokens") takes a few bytes, whatever its size. A run is two variable-length integers
/// (seven bits per byte, lowest first; the top bit says that more follow): how many numbers are
/// left out since the end of the run before, and how many the run has.
class NumberSets {
 public:
  NumberSets() = default;
  /// From a file: data [bytes] and begin [sets + 1]. Call valid() before anything else.
  NumberSets(std::vector<std::int64_t> begin, std::vector<std::uint8_t> bytes)
      : begin_(std::move(begin)), bytes_(std::move(bytes)) {}

  [[nodiscard]] std::int64_t size() const { return std::ssize(begin_) - 1; }
  /// Adds a set: ascending numbers from 0, each once.
  void add(std::span<const std::int32_t> numbers);

  /// Calls visit(first, count) for each run of a set, ascending.
  template <typename Visit>
  void for_runs(std::int64_t set, Visit&& visit) const {
    const auto at = static_cast<std::size_t>(set);
    std::int64_t next = 0;
    for (std::int64_t byte = begin_[at]; byte < begin_[at + 1];) {
      next += read(byte);
      const std::int64_t count = read(byte);
      visit(static_cast<std::int32_t>(next), count);
      next += count;
    }
  }
  /// Calls visit(number) for each number of a set, ascending.
  template <typename Visit>
  void for_each(std::int64_t set, Visit&& visit) const {
    for_runs(set, [&](std::int32_t first, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) visit(static_cast<std::int32_t>(first + i));
    });
  }
  [[nodiscard]] std::vector<std::int32_t> numbers(std::int64_t set) const;
  [[nodiscard]] std::int64_t count(std::int64_t set) const;
  [[nodiscard]] bool contains(std::int64_t set, std::int32_t number) const;

  [[nodiscard]] const std::vector<std::int64_t>& begin() const { return begin_; }
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  /// Whether the bytes of every set are whole runs of 32-bit numbers, for begin indices that fit.
  [[nodiscard]] bool valid() const;

  friend bool operator==(const NumberSets&, const NumberSets&) = default;

 private:
  void write(std::int64_t value);
  /// The integer at `byte`, which moves behind it.
  [[nodiscard]] std::int64_t read(std::int64_t& byte) const {
    std::int64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const std::uint8_t part = bytes_[static_cast<std::size_t>(byte++)];
      value |= static_cast<std::int64_t>(part & 0x7f) << shift;
      if (part < 0x80) return value;
    }
  }

  std::vector<std::int64_t> begin_{0};
  std::vector<std::uint8_t> bytes_;
};

}  // namespace kvreplay
