#include "devices/commands.hpp"

#include <algorithm>
#include <stdexcept>

namespace kvreplay {

void to_commands(std::span<const Extent> extents, bool write, const DeviceLimits& limits,
                 std::vector<IoCommand>& commands, bool merge) {
  const std::uint64_t block = limits.logical_block_bytes;
  const auto emit = [&](std::uint64_t begin, std::uint64_t end) {
    while (begin < end) {
      const auto bytes = std::min<std::uint64_t>(end - begin, limits.max_transfer_bytes);
      commands.push_back({begin, static_cast<std::uint32_t>(bytes), write});
      begin += bytes;
    }
  };

  std::uint64_t begin = 0;  // of the run of blocks being gathered; empty while begin == end
  std::uint64_t end = 0;
  std::uint64_t previous_offset = 0;
  for (const Extent& extent : extents) {
    if (extent.offset < previous_offset) throw std::logic_error("to_commands: unsorted extents");
    previous_offset = extent.offset;
    if (extent.bytes == 0) continue;
    const std::uint64_t first = extent.offset / block * block;
    const std::uint64_t last = (extent.end() + block - 1) / block * block;
    if (first > end || begin == end || !merge) {
      emit(begin, end);
      begin = first;
      end = last;
    } else {
      end = std::max(end, last);
    }
  }
  emit(begin, end);
}

}  // namespace kvreplay
