#pragma once

#include <cstdint>
#include <vector>

#include "base/parameters.hpp"
#include "devices/device_config.hpp"

namespace kvreplay {

/// What a device holds and is rated to withstand; 0 where it is not known.
struct Endurance {
  std::int64_t capacity_bytes = 0;
  /// That may be programmed in its life: the rating in bytes written or, where there is none,
  /// cycles x capacity.
  double rated_bytes = 0;
  std::int64_t erase_block_bytes = 0;  ///< of one die
};

/// Parameters of a device that has these figures.
[[nodiscard]] std::vector<Parameter> endurance_parameters();

/// From the arguments of a device whose part has endurance_parameters(); all zero for another.
[[nodiscard]] Endurance endurance_of(const DeviceSpec& device);

}  // namespace kvreplay
