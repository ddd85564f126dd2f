#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "devices/real/block_target.hpp"
#include "devices/remote/remote_device.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {

/// An open target, of this machine or of a connected device: exactly one of the two members is set.
struct OpenTarget {
  std::unique_ptr<RemoteDevice> device;
  std::optional<BlockTarget> target;
};

/// Opens `path` (a path or the address of a device) or, if `create_bytes` is not 0, creates it as a
/// new file. From then on, a signal sets `interrupted`.
[[nodiscard]] OpenTarget open_target(const std::string& path, std::uint64_t create_bytes,
                                     bool write, bool allow_destructive, const RemoteFlags& remote);

}  // namespace kvreplay
