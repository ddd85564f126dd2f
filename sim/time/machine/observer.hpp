#pragma once

#include <cstddef>
#include <span>

#include "devices/device.hpp"
#include "sim/time/machine/machine.hpp"

namespace kvreplay {

/// Observes a virtual machine and changes nothing.
class MachineObserver {
 public:
  /// `layer`: Machine::kNoLayer for the head.
  virtual void on_compute(Kernels kernels, std::size_t layer, SimTime begin, SimTime duration) = 0;
  /// A transfer of a layer begins, even one without commands, which then does not end.
  virtual void on_transfer_begin(TransferKind kind, std::size_t layer, SimTime now,
                                 std::span<const IoCommand> commands) = 0;
  virtual void on_transfer_end(TransferKind kind, std::size_t layer, SimTime now) = 0;
  /// From now on, `under_way` commands are in progress in the host or in the device.
  virtual void on_commands(std::size_t under_way, SimTime now) = 0;

 protected:
  ~MachineObserver() = default;
};

}  // namespace kvreplay
