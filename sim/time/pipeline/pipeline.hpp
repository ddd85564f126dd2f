#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/registry.hpp"
#include "sim/time/machine/machine.hpp"

namespace kvreplay {

/// Role: how I/O and compute of a decode step overlap. A pipeline runs all work of a step: every
/// layer's compute, reads and writes, and the LM head. It sees only the machine's interface, so
/// that the same step runs in virtual time, into a schedule, or for real.
///
/// The reads of a layer end before its attention begins. Its writes start when its entries exist,
/// and only the writes of the same layer one step later wait for them, so at most one step's writes
/// are held in memory. Until they are done, their entries are read from memory, not from the
/// device.
class Pipeline {
 public:
  static constexpr std::string_view kRole = "pipeline";
  static constexpr Stage kStage = Stage::kTime;
  struct Context {};

  virtual ~Pipeline() = default;

  /// One step. The pipeline and the machine must outlive the task. A pipeline keeps no state from
  /// step to step, so one pipeline serves several machines.
  virtual StepTask step(Machine& machine) const = 0;
  /// Whether reads start before the layer's own query is known. The selection must then not need
  /// that query.
  [[nodiscard]] virtual bool selects_ahead() const { return false; }
  /// Whether representatives are on flash and are read for each step; DRAM then holds those of one
  /// layer.
  [[nodiscard]] virtual bool index_on_flash() const { return false; }
  /// Whether it reads a layer's cached groups before the layer needs them, while the previous layer
  /// attends; DRAM then holds those of at most two layers. Only then may the cache be paged by
  /// layer.
  [[nodiscard]] virtual bool pages_cache() const { return false; }
  /// The number of layers whose reads may be in memory at once: the read buffers.
  [[nodiscard]] virtual std::int64_t read_buffers() const = 0;
};

}  // namespace kvreplay
