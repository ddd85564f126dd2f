#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kvreplay {

/// A thermal zone of the system.
struct Temperature {
  std::string zone;  ///< the system's name for it: "ufs-thermal"
  double celsius = 0;
};

/// Every zone that reports a temperature; none where the system has none. `folder` holds
/// thermal_zone*/.
[[nodiscard]] std::vector<Temperature> temperatures(
    const std::string& folder = "/sys/class/thermal");
[[nodiscard]] nlohmann::ordered_json to_json(const std::vector<Temperature>& temperatures);

/// Free space of the file system that holds `path`; nothing where it is unknown.
[[nodiscard]] std::optional<std::uint64_t> free_bytes(const std::string& path);

/// "ext4 on /dev/vda" for the file system that holds `path`; "" where it is unknown.
[[nodiscard]] std::string file_system_of(const std::string& path);

/// Of all processors since the system began, in the system's units.
struct ProcessorTime {
  std::int64_t passed = 0;
  std::int64_t stolen = 0;  ///< that the host of a virtual machine gave to others
};
/// Zeros where the system does not tell.
[[nodiscard]] ProcessorTime processor_time(const std::string& file = "/proc/stat");
/// What was stolen of the time that passed between the two; 0 where none passed.
[[nodiscard]] double stolen_share(const ProcessorTime& before, const ProcessorTime& after);
/// "this machine's host took 12.3 % of the processors' time", from 2 % on; "" below.
[[nodiscard]] std::string disturbance(double stolen_share);

/// The machine that took the measurement.
struct HostFacts {
  std::string name;
  std::string kernel;   ///< "Linux 6.1.0-56-amd64"
  std::string machine;  ///< "x86_64"
  std::int64_t processors = 0;
  std::int64_t page_bytes = 0;
};
[[nodiscard]] HostFacts host_facts();
[[nodiscard]] nlohmann::ordered_json to_json(const HostFacts& host);

}  // namespace kvreplay
