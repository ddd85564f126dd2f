#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "devices/flash/parameters.hpp"

namespace kvreplay::flash {

/// Writes of less than a mapping unit. The map knows whole units only, so the rest of a unit is
/// read and written with the new part. One unit is held open at the end of the last write, as one
/// that continues it may fill it without a read.
class PartialWrites {
 public:
  explicit PartialWrites(const Arguments& arguments)
      : unit_bytes_(unsigned_of(arguments, "map_unit_bytes")) {
    const std::uint64_t page = unsigned_of(arguments, "page_bytes");
    if (unit_bytes_ % page != 0 && page % unit_bytes_ != 0) {
      throw bad_value(arguments, "map_unit_bytes",
                      "a divisor or a multiple of page_bytes = " + std::to_string(page));
    }
  }

  [[nodiscard]] static std::vector<Parameter> parameters() {
    return {integer_parameter(
        "map_unit_bytes", "bytes", 512, {512, 64 * kMiB},
        "what one entry of the address map stands for; a smaller write reads and rewrites it all")};
  }

  [[nodiscard]] std::uint64_t unit_bytes() const { return unit_bytes_; }

  /// What a write costs beyond its own bytes: units to read first, and the bytes of them that are
  /// written again. What closes the unit that an earlier write left open is on this write's bill.
  /// The units that it covers, the open one that it continues not counted again, are new_units from
  /// first_unit.
  struct Extra {
    std::array<std::uint64_t, 2> units{};  ///< `reads` of them: unit numbers
    std::uint32_t reads = 0;
    std::uint64_t rewritten_bytes = 0;
    std::uint64_t first_unit = 0;
    std::uint64_t new_units = 0;
  };
  Extra add(std::uint64_t offset, std::uint64_t bytes) {
    Extra extra;
    extra.first_unit = offset / unit_bytes_;
    if (offset == open_end_ && offset % unit_bytes_ != 0) ++extra.first_unit;
    extra.new_units = (offset + bytes - 1) / unit_bytes_ + 1 - extra.first_unit;
    if (offset != open_end_) {
      if (open_end_ % unit_bytes_ != 0) {
        extra.units[extra.reads++] = open_end_ / unit_bytes_;
        extra.rewritten_bytes += unit_bytes_ - open_end_ % unit_bytes_;
      }
      if (offset % unit_bytes_ != 0) {
        extra.units[extra.reads++] = offset / unit_bytes_;
        extra.rewritten_bytes += offset % unit_bytes_;
      }
    }
    open_end_ = offset + bytes;
    return extra;
  }

 private:
  const std::uint64_t unit_bytes_;
  std::uint64_t open_end_ = 0;  ///< of the last write; the unit is open if it ends within one
};

}  // namespace kvreplay::flash
