#pragma once

#include <string>
#include <string_view>

#include "sim/time/time_plan.hpp"

namespace kvreplay {

/// A timing as bytes, and back. What comes back is equal in every bit.
[[nodiscard]] std::string to_bytes(const Timing& timing);
[[nodiscard]] Timing timing_from(std::string_view bytes);

}  // namespace kvreplay
