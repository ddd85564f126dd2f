#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "devices/real/block_target.hpp"
#include "devices/remote/remote_device.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {

/// A target that is open: of this machine, or of a connected device. One of the two is there.
struct OpenTarget {
  std::unique_ptr<RemoteDevice> device;
  std::optional<BlockTarget> target;
};

/// Opens `path`, a path or the address of a device, or makes it, a new file, where `create_bytes`
/// is not 0. From then on, a signal sets `interrupted`.
[[nodiscard]] OpenTarget open_target(const std::string& path, std::uint64_t create_bytes,
                                     bool write, bool allow_destructive, const RemoteFlags& remote);

}  // namespace kvreplay
