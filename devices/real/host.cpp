#include "devices/real/host.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

namespace kvreplay {

std::vector<Temperature> temperatures(const std::string& folder) {
  std::vector<std::filesystem::path> zones;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    if (entry.path().filename().string().starts_with("thermal_zone")) zones.push_back(entry.path());
  }
  std::sort(zones.begin(), zones.end());
  std::vector<Temperature> found;
  for (const std::filesystem::path& zone : zones) {
    std::string type;
    double millidegrees = 0;
    if (!(std::ifstream(zone / "type") >> type)) type = zone.filename().string();
    if (!(std::ifstream(zone / "temp") >> millidegrees)) continue;  // a zone may be asleep
    found.push_back({type, millidegrees / 1000});
  }
  return found;
}

nlohmann::ordered_json to_json(const std::vector<Temperature>& temperatures) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const auto& [zone, celsius] : temperatures) {
    json.push_back({{"zone", zone}, {"celsius", celsius}});
  }
  return json;
}

std::optional<std::uint64_t> free_bytes(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) return std::nullopt;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

ProcessorTime processor_time(const std::string& file) {
  // cpu user nice system idle iowait irq softirq steal ...  (proc(5))
  std::ifstream stream(file);
  std::string name;
  ProcessorTime time;
  stream >> name;
  for (int field = 0; field < 8; ++field) {
    if (!(stream >> time.stolen)) return {};
    time.passed += time.stolen;
  }
  return time;
}

double stolen_share(const ProcessorTime& before, const ProcessorTime& after) {
  const std::int64_t passed = after.passed - before.passed;
  if (passed <= 0) return 0;
  return static_cast<double>(after.stolen - before.stolen) / static_cast<double>(passed);
}

std::string disturbance(double stolen_share) {
  constexpr double kLeast = 0.02;
  if (stolen_share < kLeast) return {};
  std::array<char, 80> text{};
  std::snprintf(text.data(), text.size(),
                "this machine's host took %.1f %% of the processors' time", 100 * stolen_share);
  return text.data();
}

std::string file_system_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  const std::string device =
      std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev));
  // Fields: id parent major:minor root mount-point options [tags] - type source ...  (proc(5))
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string id, parent, numbers;
    fields >> id >> parent >> numbers;
    const std::size_t separator = line.find(" - ");
    if (numbers != device || separator == std::string::npos) continue;
    std::istringstream rest(line.substr(separator + 3));
    std::string type, source;
    rest >> type >> source;
    return type + " on " + source;
  }
  return {};
}

HostFacts host_facts() {
  utsname system{};
  ::uname(&system);
  return {system.nodename, std::string(system.sysname) + " " + system.release, system.machine,
          ::sysconf(_SC_NPROCESSORS_ONLN), ::sysconf(_SC_PAGESIZE)};
}

nlohmann::ordered_json to_json(const HostFacts& host) {
  return {{"name", host.name},
          {"kernel", host.kernel},
          {"machine", host.machine},
          {"processors", host.processors},
          {"page_bytes", host.page_bytes}};
}

}  // namespace kvreplay
