#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "devices/device.hpp"

namespace kvreplay {

/// What the processor computes, for whoever looks on.
struct ComputeName {
  static constexpr std::size_t kNoLayer = std::numeric_limits<std::size_t>::max();
  const char* what = "";  ///< a literal
  std::size_t layer = kNoLayer;
};

enum class TransferKind : std::uint8_t { kReads, kWrites, kIndexReads, kCacheReads };

/// Looks on while a machine works, and changes nothing.
class MachineObserver {
 public:
  virtual void on_compute(const ComputeName& name, SimTime begin, SimTime duration) = 0;
  /// The transfer of a layer, also where it has no command: then it does not end.
  virtual void on_transfer_begin(TransferKind kind, std::size_t layer, SimTime now,
                                 std::span<const IoCommand> commands) = 0;
  virtual void on_transfer_end(TransferKind kind, std::size_t layer, SimTime now) = 0;
  /// So many commands are under way, in the host or in the device, from now on.
  virtual void on_commands(std::size_t under_way, SimTime now) = 0;

 protected:
  ~MachineObserver() = default;
};

}  // namespace kvreplay
