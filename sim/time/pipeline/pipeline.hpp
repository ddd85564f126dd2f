#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/registry.hpp"
#include "sim/time/machine/machine.hpp"

namespace kvreplay {

/// Role: how I/O and compute of a decode step overlap. A pipeline runs all work of a step: every
/// layer's compute, reads and writes, and the LM head. It sees the machine's interface and nothing
/// else, so that the same step runs in virtual time, into a schedule, or for real.
///
/// Reads of a layer end before its attention begins. Writes are behind the computation: a layer's
/// writes start when its entries exist, and nothing waits for them but the writes of the same layer
/// one step later; so at most one step's writes are held in memory. Until they are done the entries
/// are read from there, not from the device.
class Pipeline {
 public:
  static constexpr std::string_view kRole = "pipeline";
  static constexpr Stage kStage = Stage::kTime;
  struct Context {};

  virtual ~Pipeline() = default;

  /// One step. The pipeline and the machine outlive the task. A pipeline remembers nothing from
  /// step to step, so that one serves several machines.
  virtual StepTask step(Machine& machine) const = 0;
  /// Whether reads start before the layer's own query is known, so that the selection must not need
  /// it.
  [[nodiscard]] virtual bool selects_ahead() const { return false; }
  /// Whether representatives lie on flash and are read for each step; DRAM holds one layer's.
  [[nodiscard]] virtual bool index_on_flash() const { return false; }
  /// Whether it reads a layer's cached groups before the layer needs them, while the layer before
  /// attends; DRAM holds two layers' at most. Only then may the cache be paged by layer.
  [[nodiscard]] virtual bool pages_cache() const { return false; }
  /// How many layers' reads may be in memory at once: buffers for reads to land in.
  [[nodiscard]] virtual std::int64_t read_buffers() const = 0;
};

}  // namespace kvreplay
