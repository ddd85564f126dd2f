#pragma once

#include <cstdint>

namespace kvreplay {

/// Descriptors that a command takes in the ring between a guest and its host: of virtio's block
/// device, one each for its header and its status, and one per piece of its memory, here per page
/// of 4 KiB (Virtual I/O Device, version 1.2, 2.7 and 5.2.6; without indirect descriptors).
[[nodiscard]] constexpr std::uint64_t ring_descriptors(std::uint64_t bytes) {
  return 2 + (bytes + 4095) / 4096;
}

}  // namespace kvreplay
