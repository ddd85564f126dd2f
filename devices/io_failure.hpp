#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "devices/device.hpp"

namespace kvreplay {

/// A request that did not transfer all its bytes.
struct IoFailure {
  IoCommand command;
  int error = 0;                        ///< errno; 0 for a short transfer
  std::uint32_t transferred_bytes = 0;  ///< by a short transfer
  std::int64_t unanswered_ns = 0;       ///< > 0: it had not ended this long after its start

  /// `device`: the path of the file or device that the error names.
  [[nodiscard]] UserError to_error(const std::string& device) const;
};

}  // namespace kvreplay
