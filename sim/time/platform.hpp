#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/config.hpp"
#include "base/engine/simulation.hpp"
#include "base/parameters.hpp"

namespace kvreplay {

/// The SoC: compute rate, DRAM bandwidth and size, power, from configs/platforms/NAME.json.
struct PlatformSpec {
  [[nodiscard]] static std::span<const Parameter> parameters();
  [[nodiscard]] static PlatformSpec load(const std::string& file);
  [[nodiscard]] static PlatformSpec parse(const ConfigNode& node, std::string name);

  std::string name;
  std::string title;
  std::string source;
  Arguments arguments;

  double flops_s = 0;       ///< peak rate times the share that kernels reach, flop/s
  double dram_bytes_s = 0;  ///< peak bandwidth times the share that kernels reach, bytes/s
  std::int64_t dram_bytes = 0;
  SimTime layer_overhead_ns = 0;      ///< kernel launches and synchronisation, once per layer
  SimTime selection_overhead_ns = 0;  ///< likewise for scoring, top-k and gathering
  SimTime sequence_overhead_ns = 0;   ///< overhead of selection per sequence of a batch

  // 0 = not known.
  double compute_power_w = 0;  ///< of the processor while it computes
  double waiting_power_w = 0;  ///< of the processor while it waits
  double dram_pj_bit = 0;      ///< per bit read or written
  double dram_idle_w = 0;      ///< of the DRAM, whatever it does

  /// Roofline: the longer of arithmetic and memory traffic (Williams et al., CACM 2009), in whole
  /// nanoseconds, rounded up.
  [[nodiscard]] SimTime kernel_ns(double flops, double bytes) const;
};

}  // namespace kvreplay
