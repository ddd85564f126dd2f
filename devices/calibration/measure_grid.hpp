#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "devices/calibration/measure.hpp"
#include "devices/device_config.hpp"

namespace kvreplay {

/// Closed loops of requests of every size at every depth.
struct Grid {
  std::vector<std::uint64_t> sizes{512,      4 << 10,   8 << 10,   16 << 10,  24 << 10, 32 << 10,
                                   64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20};  ///< bytes
  std::vector<std::uint32_t> depths{1, 2, 4, 8, 16, 32};
  double write_percent = 0;  ///< of the requests
  std::uint64_t range_bytes = Workload{}.range_bytes;
  bool sequential = false;

  /// "random reads over 64G"
  [[nodiscard]] std::string text() const;
};

/// What a device model reaches, by [size][depth].
[[nodiscard]] std::vector<Measurement> measure_grid(const DeviceSpec& spec, const Grid& grid,
                                                    int threads);

/// Bandwidth, IOPS and mean latency, for people.
[[nodiscard]] std::string grid_text(const Grid& grid, const std::vector<Measurement>& cells);
/// One line per size and depth.
[[nodiscard]] std::string grid_csv(const std::string& device, const Grid& grid,
                                   const std::vector<Measurement>& cells);

}  // namespace kvreplay
