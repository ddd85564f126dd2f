#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace kvreplay {

/// How an entry's key and value are stored. The format determines the bytes for any shape, so that
/// a plan can be made for another model than the recorded one.
struct EntryFormat {
  std::string name;
  double bits_per_element = 16;       ///< codes, and scales shared by a fixed number of elements
  double overhead_bits_per_head = 0;  ///< scales that occur once per head's key and value
  /// Only of the newest entries, as many of a longer sequence.
  bool newest = false;

  /// Bytes of one entry: key and value of `kv_heads` heads.
  [[nodiscard]] std::int64_t entry_bytes(std::int64_t kv_heads, std::int64_t head_dim) const {
    const double bits =
        static_cast<double>(kv_heads) *
        (2.0 * static_cast<double>(head_dim) * bits_per_element + overhead_bits_per_head);
    return static_cast<std::int64_t>(std::ceil(bits / 8.0));
  }
};

}  // namespace kvreplay
