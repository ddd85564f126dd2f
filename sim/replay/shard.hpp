#pragma once

#include <cstddef>

namespace kvreplay {

/// Part `index` (from 1) of `count` of an experiment's cells. Cells that share stage 1 or 2 stay
/// together as far as parts of equal size allow.
struct Shard {
  std::size_t index = 1;
  std::size_t count = 1;
};

}  // namespace kvreplay
