#pragma once

#include <cstddef>
#include <span>

#include "devices/device.hpp"
#include "sim/time/machine/machine.hpp"

namespace kvreplay {

/// Looks on while a virtual machine works, and changes nothing.
class MachineObserver {
 public:
  /// `layer`: Machine::kNoLayer for the head.
  virtual void on_compute(Kernels kernels, std::size_t layer, SimTime begin, SimTime duration) = 0;
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
