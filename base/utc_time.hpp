#pragma once

#include <string>

namespace kvreplay {

/// The time of SOURCE_DATE_EPOCH (seconds since 1970), which makes outputs reproducible, or else
/// the current time; in UTC, "2026-11-28T20:45:00Z".
[[nodiscard]] std::string utc_now();

}  // namespace kvreplay
