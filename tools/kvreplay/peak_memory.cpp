#include "tools/kvreplay/peak_memory.hpp"

#include <fstream>
#include <string>

namespace kvreplay {

std::int64_t peak_memory_bytes() {
  // Not getrusage: its maximum is inherited from the program that started this one.
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    std::int64_t kibibytes = 0;
    if (name == "VmHWM:" && status >> kibibytes) return 1024 * kibibytes;
  }
  return 0;
}

}  // namespace kvreplay
