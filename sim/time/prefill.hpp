#pragma once

#include <cstdint>
#include <vector>

#include "base/engine/process.hpp"
#include "devices/device.hpp"
#include "devices/device_config.hpp"
#include "sim/time/energy.hpp"
#include "sim/time/machine/step_task.hpp"
#include "sim/time/model_spec.hpp"
#include "sim/time/target_layers.hpp"

namespace kvreplay {

class Machine;
class PowerLimit;
class Schedule;
class Timeline;

/// What the prompt takes before the first token, for the whole batch.
struct Prefill {
  SimTime ttft_ns = 0;           ///< == compute_ns + index_ns + exposed_write_ns
  SimTime compute_ns = 0;        ///< the model's own work
  SimTime index_ns = 0;          ///< what the system's parts add to it
  SimTime exposed_write_ns = 0;  ///< the processor waits for writes
  SimTime busy_write_ns = 0;     ///< at least one write is in progress
  std::int64_t dram_bytes = 0;   ///< peak, without weights
  std::int64_t write_bytes = 0;  ///< that crossed the link
  std::int64_t write_commands = 0;
  std::int64_t flash_write_bytes = 0;  ///< programmed in NAND, and still to be folded into it
  std::int64_t erases = 0;
  Energy energy;
  std::int64_t read_bytes = 0;  ///< of earlier turns' entries; exposed and busy times count them

  /// Whether it was simulated.
  [[nodiscard]] bool known() const { return ttft_ns > 0; }
};

/// What time_prefill() takes. All of it outlives the call.
struct PrefillCell {
  const IoPlan& plan;
  const ModelSpec& model;
  const PlatformSpec& platform;
  const std::vector<TargetLayer>& layers;  ///< with their regions
  std::int64_t batch = 1;
  std::int64_t chunk_tokens = 512;  ///< of each sequence, computed together
  bool index_on_flash = false;      ///< Pipeline::index_on_flash()
  Timeline* timeline = nullptr;     ///< sees the prefill
  Schedule* schedule = nullptr;     ///< receives what the prefill does, as one step
  /// Of IoPlan::turns: 0 prefills the prompt; a later one its new tokens, against what lies where
  /// as it begins.
  std::int64_t turn = 0;
  /// Of a later turn: reads what its tokens select, as they would one by one; otherwise all entries
  /// that memory lacks.
  bool reads_selected = false;
  bool cache_dropped = false;         ///< the cache is read back, too
  PowerLimit* power_limit = nullptr;  ///< of run_prefill(); time_prefill() has one of its own
};

/// A prefill's positions: those before `begin` are known.
struct PrefillRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
[[nodiscard]] PrefillRange prefill_range(const IoPlan& plan, std::int64_t turn);

/// What a turn's prefill takes longer where it prefills all tokens anew: computation, and the index
/// of them all. Writes are not counted.
[[nodiscard]] SimTime recompute_time(const PrefillCell& cell, PrefillRange fresh);

/// What the parts of the system take for the index of so many tokens, in all layers.
[[nodiscard]] SimTime index_time(const PrefillCell& cell, std::int64_t tokens);

/// The prompt, layer by layer and in chunks within a layer: a machine's layer is one chunk of one
/// layer. Its kAttend is the model's work, its kScore the index's, and its writes are what can be
/// written once both are done. Writes run behind the computation. The prompt is done when the first
/// token's LM head has run and all its entries are written, because they wait in memory until then.
/// With `reads`, a layer's earlier entries are read while the layer before computes.
[[nodiscard]] StepTask prefill_step(Machine& machine, bool reads = false);

/// Runs the prefill on a device, in a simulation of the caller's. A process that has ended has
/// filled `prefill`, except for what the device does on its own afterwards.
[[nodiscard]] Process run_prefill(PrefillCell cell, Simulation& simulation, Device& device,
                                  Prefill& prefill);

/// The prefill on a device of its own, as it comes from the shop.
[[nodiscard]] Prefill time_prefill(const PrefillCell& cell, const DeviceSpec& device);

}  // namespace kvreplay
