#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "devices/flash/divisor.hpp"
#include "devices/flash/parameters.hpp"

namespace kvreplay::flash {

/// The part of the logical-to-physical map that the controller holds in its own memory: the most
/// recently used lines. One read of the map from NAND brings one line.
class MapCache {
 public:
  explicit MapCache(const Arguments& arguments)
      : line_bytes_(unsigned_of(arguments, "map_line_entries") * kEntryBytes),
        reach_of_line_(unsigned_of(arguments, "map_line_entries") *
                       unsigned_of(arguments, "map_unit_bytes")),
        lines_(unsigned_of(arguments, "map_cache_entries") /
               unsigned_of(arguments, "map_line_entries")) {
    if (arguments.integer("map_cache_entries") > 0 && lines_ == 0) {
      throw bad_value(arguments, "map_cache_entries",
                      "0, or at least map_line_entries = " +
                          std::to_string(arguments.integer("map_line_entries")));
    }
  }

  [[nodiscard]] static std::vector<Parameter> parameters() {
    return {
        integer_parameter("map_cache_entries", "entries", 0, {0, 1e9},
                          "entries of the address map in the controller's memory, evicted in LRU "
                          "order; 0: the whole map"),
        integer_parameter(
            "map_line_entries", "entries", 1024, {1, 1e6},
            "neighbouring entries that one read of the map from NAND brings, 4 bytes each"),
    };
  }

  [[nodiscard]] bool enabled() const { return lines_ > 0; }
  [[nodiscard]] std::uint64_t line_bytes() const { return line_bytes_; }
  [[nodiscard]] std::uint64_t line_of_byte(std::uint64_t offset) const {
    return offset / reach_of_line_;
  }

  /// Whether the line is held; if so, it becomes the most recently used.
  [[nodiscard]] bool touch(std::uint64_t line) {
    const auto found = place_.find(line);
    if (found == place_.end()) return false;
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    return true;
  }

  /// Fills the cache as long random use of the first `range_bytes` would, with at most a million
  /// lines.
  void settle(std::uint64_t range_bytes, Random& random) {
    const std::uint64_t lines = (range_bytes + reach_of_line_ - 1) / reach_of_line_;
    const std::size_t max = std::min<std::size_t>(lines_, 1 << 20);
    if (lines <= max) {
      for (std::uint64_t line = 0; line < lines; ++line) insert(line);
    } else {
      while (place_.size() < max) insert(random.below(lines));
    }
  }

  /// The line has arrived from NAND.
  void insert(std::uint64_t line) {
    if (touch(line)) return;
    if (place_.size() < lines_) {
      by_use_.push_front(line);
      place_.emplace(line, by_use_.begin());
      return;
    }
    // The least recently used line's nodes take the new one: nothing is allocated.
    by_use_.splice(by_use_.begin(), by_use_, std::prev(by_use_.end()));
    auto node = place_.extract(by_use_.front());
    by_use_.front() = node.key() = line;
    place_.insert(std::move(node));
  }

 private:
  static constexpr std::uint64_t kEntryBytes = 4;  // ConZone ssd_config.h

  const std::uint64_t line_bytes_;
  const Divisor reach_of_line_;  ///< logical bytes that one line maps
  const std::size_t lines_;
  std::list<std::uint64_t> by_use_;  ///< most recently used first
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> place_;
};

}  // namespace kvreplay::flash
