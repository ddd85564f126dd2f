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
