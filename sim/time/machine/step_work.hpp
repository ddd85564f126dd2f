#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "devices/device.hpp"
#include "sim/time/machine/machine.hpp"
#include "sim/time/platform.hpp"

namespace kvreplay {

/// What one layer of one step requires, for the whole batch, of a machine that neither computes nor
/// reads for real.
struct LayerWork {
  SimTime project_query_ns = 0;
  SimTime project_key_value_ns = 0;
  SimTime score_ns = 0;
  SimTime attend_ns = 0;
  std::array<std::vector<IoCommand>, kTransferKinds> transfers;  ///< by TransferKind
  /// The processor's time to hand over each transfer's commands, one after the other.
  std::array<SimTime, kTransferKinds> submit_ns{};

  [[nodiscard]] std::vector<IoCommand>& commands(TransferKind kind) {
    return transfers[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] std::span<const IoCommand> commands(TransferKind kind) const {
    return transfers[static_cast<std::size_t>(kind)];
  }
};

/// One decoded token for every sequence of the batch.
struct StepWork {
  std::vector<LayerWork> layers;
  SimTime head_ns = 0;          ///< LM head
  SimTime submit_first_ns = 0;  ///< share of a transfer's first command in LayerWork::submit_ns
  /// What transfers take longer than on the device alone; null: nothing.
  const MeasuredKernels* measured = nullptr;

  /// Time of the kernels of one layer, or of the head for Machine::kNoLayer.
  [[nodiscard]] SimTime duration_ns(Kernels kernels, std::size_t layer) const {
    if (kernels == Kernels::kHead) return head_ns;
    const LayerWork& work = layers[layer];
    SimTime sum = 0;
    if (contains(kernels, Kernels::kProjectQuery)) sum += work.project_query_ns;
    if (contains(kernels, Kernels::kProjectKeyValue)) sum += work.project_key_value_ns;
    if (contains(kernels, Kernels::kScore)) sum += work.score_ns;
    if (contains(kernels, Kernels::kAttend)) sum += work.attend_ns;
    return sum;
  }
  /// Time of all kernels of all layers, and to hand over all commands.
  [[nodiscard]] SimTime compute_ns() const {
    constexpr Kernels kAll = Kernels::kProject | Kernels::kScore | Kernels::kAttend;
    SimTime sum = head_ns;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      sum += duration_ns(kAll, layer);
      for (const SimTime submit : layers[layer].submit_ns) sum += submit;
    }
    return sum;
  }
};

}  // namespace kvreplay
