#include "base/memory.hpp"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace kvreplay {
namespace {

std::optional<std::int64_t> number_in(const std::string& file) {
  std::ifstream stream(file);
  std::int64_t number = 0;
  if (stream >> number) return number;
  return std::nullopt;  // "max", or no such file
}

std::optional<std::int64_t> system_available() {
  std::ifstream stream("/proc/meminfo");
  for (std::string name; stream >> name;) {
    std::int64_t kib = 0;
    if (name == "MemAvailable:" && stream >> kib) return kib * 1024;
    stream.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

/// A size in what the system says of this process; 0 where it does not say it.
std::int64_t status_bytes(const std::string& wanted) {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    std::int64_t kibibytes = 0;
    if (name == wanted && status >> kibibytes) return 1024 * kibibytes;
  }
  return 0;
}

/// The memory left in the process's own control group (version 2).
std::optional<std::int64_t> group_available() {
  std::ifstream stream("/proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("0::")) continue;
    const std::string folder = "/sys/fs/cgroup" + line.substr(3) + "/memory.";
    const auto limit = number_in(folder + "max");
    const auto used = number_in(folder + "current");
    if (limit && used) return std::max<std::int64_t>(*limit - *used, 0);
  }
  return std::nullopt;
}

}  // namespace

std::int64_t available_memory_bytes() {
  const auto of_system = system_available();
  const auto of_group = group_available();
  if (of_system && of_group) return std::min(*of_system, *of_group);
  return of_group.value_or(of_system.value_or(0));
}

std::int64_t total_memory_bytes() {
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES);
  return pages < 0 ? 0 : pages * std::int64_t{::sysconf(_SC_PAGESIZE)};
}

std::int64_t peak_memory_bytes() {
  // Not getrusage: its maximum is inherited from the program that started this one.
  return status_bytes("VmHWM:");
}

std::int64_t own_memory_bytes() {
  return status_bytes("RssAnon:");
}

void give_back_free_memory() {
#ifdef __GLIBC__
  // Set by hand they no longer grow with the largest buffer that was freed, up to 64 MiB: below
  // them, the allocator keeps what is free.
  constexpr int kKept = 1 << 20;
  ::mallopt(M_MMAP_THRESHOLD, kKept);
  ::mallopt(M_TRIM_THRESHOLD, kKept);
  ::malloc_trim(0);
#endif
}

}  // namespace kvreplay
