#pragma once

#include <string>

namespace kvreplay {

/// The time of SOURCE_DATE_EPOCH, which makes builds reproducible, or else the current time.
[[nodiscard]] std::string utc_now();

}  // namespace kvreplay
