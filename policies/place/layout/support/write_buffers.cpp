#include "policies/place/layout/support/write_buffers.hpp"

#include <algorithm>

namespace kvreplay {

std::vector<Parameter> WriteBuffers::parameters() {
  return {
      integer_parameter("page_bytes", "bytes", 0, {0, 1 << 24},
                        "new entries are written in whole pages of this size; 0 = as they "
                        "lie, at once"),
      integer_parameter("hot_groups", "groups", 0, {0, 1e6},
                        "how many of the most recently updated groups keep new entries in "
                        "memory until a page is full; pages of other groups are read, changed and "
                        "written at once")};
}

WriteBuffers::WriteBuffers(const Arguments& arguments)
    : page_bytes_(static_cast<std::uint64_t>(arguments.integer("page_bytes"))),
      hot_groups_(arguments.integer("hot_groups")) {}

void WriteBuffers::append(std::int32_t stream, GroupId group, std::span<const Extent> extents,
                          LayoutTraffic& traffic) {
  if (page_bytes_ == 0) {
    traffic.writes.insert(traffic.writes.end(), extents.begin(), extents.end());
    return;
  }
  const auto found = std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& buffer) {
    return buffer.stream == stream && buffer.group == group;
  });
  if (found == buffers_.end()) {
    buffers_.push_back({.stream = stream, .group = group});
  } else {
    std::rotate(found, found + 1, buffers_.end());
  }
  Buffer& buffer = buffers_.back();
  for (Extent left : extents) {
    while (left.bytes > 0) {
      const std::uint64_t page = left.offset / page_bytes_;
      const std::uint64_t here = std::min(left.end(), (page + 1) * page_bytes_) - left.offset;
      if (buffer.page != page) write_page(buffer, traffic);
      buffer.page = page;
      buffer.bytes += here;
      if (buffer.bytes == page_bytes_) write_page(buffer, traffic);
      left = {left.offset + here, left.bytes - here};
    }
  }
  if (std::ssize(buffers_) > hot_groups_) {
    write_page(buffers_.front(), traffic);
    buffers_.erase(buffers_.begin());
  }
}

void WriteBuffers::forget(std::int32_t stream, GroupId group) {
  std::erase_if(buffers_, [&](const Buffer& buffer) {
    return buffer.stream == stream && buffer.group == group;
  });
}

std::int64_t WriteBuffers::held_bytes() const {
  return std::ssize(buffers_) * static_cast<std::int64_t>(page_bytes_);
}

std::uint64_t WriteBuffers::whole_pages(std::uint64_t region_bytes) const {
  if (page_bytes_ == 0) return region_bytes;
  return (region_bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
}

void WriteBuffers::write_page(Buffer& buffer, LayoutTraffic& traffic) const {
  if (buffer.bytes == 0) return;
  const Extent page{buffer.page * page_bytes_, page_bytes_};
  if (buffer.bytes < page_bytes_) traffic.moved_reads.push_back(page);
  traffic.writes.push_back(page);
  buffer.bytes = 0;
}

}  // namespace kvreplay
