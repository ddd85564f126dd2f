#pragma once

#include <limits>

#include "sim/replay/replay_result.hpp"

namespace kvreplay {

/// What conversations with one sequence cost a device's life (docs/prefill-and-wear.md). NaN where
/// a figure is not known: without a prefill, or without a rating of the device.
struct Wear {
  double prompt_bytes = std::numeric_limits<double>::quiet_NaN();  ///< programmed in NAND
  double token_bytes = std::numeric_limits<double>::quiet_NaN();   ///< likewise, per decoded token
  double prompt_erases = std::numeric_limits<double>::quiet_NaN();
  double token_erases = std::numeric_limits<double>::quiet_NaN();
  double prompt_amplification = std::numeric_limits<double>::quiet_NaN();
  double share_per_1000 = std::numeric_limits<double>::quiet_NaN();
  double years = std::numeric_limits<double>::quiet_NaN();  ///< NaN where nothing is written, too
};

[[nodiscard]] Wear wear_of(const CellResult& cell);

}  // namespace kvreplay
