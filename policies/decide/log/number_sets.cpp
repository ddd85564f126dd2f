#include "policies/decide/log/number_sets.hpp"

#include <cassert>
#include <limits>

namespace kvreplay {

void NumberSets::add(std::span<const std::int32_t> numbers) {
  std::int64_t end = 0;  // of the run before
  for (std::size_t i = 0; i < numbers.size();) {
    const std::int64_t first = numbers[i];
    assert(first >= end);
    std::int64_t count = 1;
    for (++i; i < numbers.size() && numbers[i] == first + count; ++i) ++count;
    write(first - end);
    write(count);
    end = first + count;
  }
  begin_.push_back(std::ssize(bytes_));
}

std::vector<std::int32_t> NumberSets::numbers(std::int64_t set) const {
  std::vector<std::int32_t> all;
  for_each(set, [&](std::int32_t number) { all.push_back(number); });
  return all;
}

std::int64_t NumberSets::count(std::int64_t set) const {
  std::int64_t sum = 0;
  for_runs(set, [&](std::int32_t, std::int64_t count) { sum += count; });
  return sum;
}

bool NumberSets::contains(std::int64_t set, std::int32_t number) const {
  bool found = false;
  for_runs(set, [&](std::int32_t first, std::int64_t count) {
    found = found || (number >= first && number < first + count);
  });
  return found;
}

bool NumberSets::valid() const {
  constexpr int kMaxBytes = 5;  // of a number below 2^32
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (std::size_t set = 0; set + 1 < begin_.size(); ++set) {
    std::int64_t next = 0;
    std::int64_t values = 0;
    for (std::int64_t byte = begin_[set]; byte < begin_[set + 1]; ++values) {
      int length = 0;
      std::int64_t last = byte;
      while (last < begin_[set + 1] && bytes_[static_cast<std::size_t>(last)] >= 0x80) {
        ++last;
        if (++length == kMaxBytes) return false;
      }
      if (last == begin_[set + 1]) return false;
      const std::int64_t value = read(byte);
      if (values % 2 == 1 && value == 0) return false;
      next += value;
      if (next > kMost) return false;
    }
    if (values % 2 != 0) return false;
  }
  return true;
}

void NumberSets::write(std::int64_t value) {
  for (; value >= 0x80; value >>= 7) {
    bytes_.push_back(static_cast<std::uint8_t>(0x80 | (value & 0x7f)));
  }
  bytes_.push_back(static_cast<std::uint8_t>(value));
}

}  // namespace kvreplay
