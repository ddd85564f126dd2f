#pragma once

#include <span>
#include <vector>

#include "base/extent.hpp"
#include "devices/device.hpp"

namespace kvreplay {

/// Appends the fewest commands that cover `extents`, which are sorted by offset (they may overlap).
/// Extents are rounded outward to logical blocks, so a request of 512 bytes on a device with
/// 4096-byte blocks costs 4096 bytes. Those that then overlap or touch become one command (without
/// `merge` each extent is a command of its own, and a block may be read twice), and a command above
/// max_transfer_bytes is split. Unsorted extents are a std::logic_error.
void to_commands(std::span<const Extent> extents, bool write, const DeviceLimits& limits,
                 std::vector<IoCommand>& commands, bool merge = true);

}  // namespace kvreplay
