#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "devices/flash/geometry.hpp"
#include "devices/flash/parameters.hpp"

namespace kvreplay::flash {

/// Blocks that are programmed with one bit per cell (UFS WriteBooster, the SLC cache of a drive):
/// writes to them are fast until they are full. While the device is idle, their data is folded into
/// the denser blocks, at the rate of these.
class WriteBooster {
 public:
  WriteBooster(const Arguments& arguments, const Geometry& geometry)
      : capacity_bytes_(unsigned_of(arguments, "booster_bytes")),
        stripe_bytes_(geometry.stripe_bytes()),
        dies_(geometry.dies()),
        program_time_(static_cast<SimTime>(geometry.program_pages) *
                      from_us(arguments.real("booster_program_us"))),
        fold_time_(static_cast<SimTime>(geometry.program_pages) *
                       from_us(arguments.real("read_us")) +
                   from_us(arguments.real("program_us"))),
        idle_wait_(from_us(arguments.real("booster_idle_us"))) {}

  [[nodiscard]] static std::vector<Parameter> parameters() {
    return {
        integer_parameter("booster_bytes", "bytes", 0, {0, 1e12},
                          "capacity of the single-bit blocks that take writes first; 0: none"),
        real_parameter("booster_program_us", "us", 75, {0, 1e6},
                       "array time to program one page of each plane in these blocks"),
        real_parameter("booster_idle_us", "us", 10000, {0, 1e9},
                       "idle time after which their data is folded into the other blocks"),
    };
  }

  [[nodiscard]] bool enabled() const { return capacity_bytes_ > 0; }
  /// Array time of a stripe in these blocks.
  [[nodiscard]] SimTime program_time() const { return program_time_; }

  /// Written, and not yet folded.
  [[nodiscard]] std::uint64_t used_bytes() const { return used_bytes_; }

  /// Takes a stripe if there is room.
  [[nodiscard]] bool take_stripe() {
    if (used_bytes_ + stripe_bytes_ > capacity_bytes_) return false;
    used_bytes_ += stripe_bytes_;
    return true;
  }

  /// Reports that the device has been idle for this long. Returns the bytes that were folded
  /// meanwhile: every die folds one stripe in the time that it takes to sense the stripe's pages
  /// and program them.
  std::uint64_t fold(SimTime idle) {
    if (used_bytes_ == 0 || idle <= idle_wait_) return 0;
    const std::uint64_t used_stripes = used_bytes_ / stripe_bytes_;
    const std::uint64_t rounds = fold_time_ == 0
                                     ? used_stripes
                                     : static_cast<std::uint64_t>((idle - idle_wait_) / fold_time_);
    const std::uint64_t stripes = std::min(used_stripes, rounds * dies_);
    used_bytes_ -= stripes * stripe_bytes_;
    return stripes * stripe_bytes_;
  }

 private:
  const std::uint64_t capacity_bytes_;
  const std::uint64_t stripe_bytes_;
  const std::uint64_t dies_;
  const SimTime program_time_;
  const SimTime fold_time_;
  const SimTime idle_wait_;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace kvreplay::flash
