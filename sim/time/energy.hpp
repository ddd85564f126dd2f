#pragma once

#include <limits>

#include "base/engine/simulation.hpp"
#include "sim/time/platform.hpp"

namespace kvreplay {

/// Of one phase, for the whole batch; NaN where the platform or device has no figures.
struct Energy {
  double compute_nj = std::numeric_limits<double>::quiet_NaN();
  double dram_nj = std::numeric_limits<double>::quiet_NaN();
  double flash_nj = std::numeric_limits<double>::quiet_NaN();

  [[nodiscard]] double total_nj() const { return compute_nj + dram_nj + flash_nj; }
};

/// A phase in which the processor computes and waits for so long, and the DRAM moves so many bytes.
/// `throttled_ns` of the computation take the sustained power.
[[nodiscard]] inline Energy energy_of(const PlatformSpec& platform, SimTime compute_ns,
                                      SimTime waiting_ns, double dram_bytes, double flash_nj,
                                      SimTime throttled_ns) {
  Energy energy;
  // 1 W for 1 ns = 1 nJ, 1 pJ = 1e-3 nJ.
  if (platform.compute_power_w > 0 && platform.waiting_power_w > 0) {
    energy.compute_nj = platform.compute_power_w * static_cast<double>(compute_ns - throttled_ns) +
                        platform.sustained_power_w * static_cast<double>(throttled_ns) +
                        platform.waiting_power_w * static_cast<double>(waiting_ns);
  }
  if (platform.dram_pj_bit > 0 && platform.dram_idle_w > 0) {
    energy.dram_nj = platform.dram_pj_bit * 8 * dram_bytes * 1e-3 +
                     platform.dram_idle_w * static_cast<double>(compute_ns + waiting_ns);
  }
  energy.flash_nj = flash_nj;
  return energy;
}

}  // namespace kvreplay
