#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "policies/place/place.hpp"

namespace kvreplay {

/// A plan as bytes, and back. What comes back is equal in every bit.
[[nodiscard]] std::string to_bytes(const IoPlan& plan);
[[nodiscard]] IoPlan plan_from(std::string_view bytes);

/// The memory that the plan's arrays take.
[[nodiscard]] std::int64_t memory_bytes(const IoPlan& plan);

}  // namespace kvreplay
