#pragma once

#include <limits>
#include <vector>

#include "devices/device.hpp"
#include "devices/flash/geometry.hpp"
#include "devices/flash/parameters.hpp"

namespace kvreplay::flash {

/// Energy of the device's work: one value per page that is sensed or programmed and per bit that is
/// moved, and a power for as long as the device is on.
class Energy {
 public:
  Energy(const Arguments& arguments, const Geometry& geometry)
      : page_bytes_(static_cast<double>(geometry.page_bytes)),
        sense_uj_(arguments.real("sense_uj")),
        program_uj_(arguments.real("program_uj")),
        transfer_pj_bit_(arguments.real("transfer_pj_bit")),
        idle_mw_(arguments.real("idle_mw")) {}

  [[nodiscard]] static std::vector<Parameter> parameters() {
    return {
        real_parameter("sense_uj", "uJ", 0, {0, 1e6}, "energy per page sensed; 0: unknown"),
        real_parameter("program_uj", "uJ", 0, {0, 1e6}, "energy per page programmed; 0: unknown"),
        real_parameter("transfer_pj_bit", "pJ/bit", 0, {0, 1e6},
                       "energy per bit on channel, controller and link; 0: unknown"),
        real_parameter("idle_mw", "mW", 0, {0, 1e6},
                       "power of the device for as long as it is on; 0: unknown"),
    };
  }

  /// NaN where a parameter is unknown.
  [[nodiscard]] double nj(const DeviceCounters& done, SimTime on_ns) const {
    if (sense_uj_ == 0 || program_uj_ == 0 || transfer_pj_bit_ == 0 || idle_mw_ == 0) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    const double pages_programmed = static_cast<double>(done.flash_write_bytes) / page_bytes_;
    const auto moved_bytes =
        static_cast<double>(done.flash_read_bytes + done.map_read_bytes + done.host_write_bytes);
    // 1 uJ = 1e3 nJ, 1 pJ = 1e-3 nJ, 1 mW for 1 ns = 1e-3 nJ.
    return 1e3 * (sense_uj_ * static_cast<double>(done.sensed_pages) +
                  program_uj_ * pages_programmed) +
           1e-3 * (transfer_pj_bit_ * 8 * moved_bytes + idle_mw_ * static_cast<double>(on_ns));
  }

 private:
  const double page_bytes_;
  const double sense_uj_;
  const double program_uj_;
  const double transfer_pj_bit_;
  const double idle_mw_;
};

}  // namespace kvreplay::flash
