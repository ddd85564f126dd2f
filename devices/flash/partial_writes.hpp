#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "devices/flash/parameters.hpp"

namespace kvreplay::flash {

/// Writes smaller than a mapping unit. The map knows whole units only, so the rest of a unit is
/// read and written with the new part. One unit is held open at the end of the last write, because
/// a write that continues there may fill it without a read.
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
        "bytes per entry of the address map; a smaller write reads and rewrites the whole unit")};
  }

  [[nodiscard]] std::uint64_t unit_bytes() const { return unit_bytes_; }

  /// What a write costs beyond its own bytes: units to read first, and those of their bytes that
  /// are written again. This write pays to close the unit left open by an earlier one. It covers
  /// new_units units from first_unit on; an open unit that it continues is not counted again.
  struct Extra {
    std::array<std::uint64_t, 2> units{};  ///< unit numbers; the first `reads` are valid
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
  std::uint64_t open_end_ = 0;  ///< end of the last write; the unit is open if it ends within one
};

}  // namespace kvreplay::flash
