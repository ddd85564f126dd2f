#include "policies/place/place_check.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kvreplay {
namespace {

void expect_holds(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("an invariant does not hold: " + what);
}

}  // namespace

void PlaceCheck::wrote(std::span<const Extent> writes) {
  for (const Extent& write : writes) {
    std::uint64_t begin = write.offset;
    std::uint64_t end = write.end();
    auto next = written_.upper_bound(begin);
    if (next != written_.begin() && std::prev(next)->second >= begin) --next;
    while (next != written_.end() && next->first <= end) {
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
      next = written_.erase(next);
    }
    written_[begin] = end;
  }
}

void PlaceCheck::read(std::span<const Extent> extents, std::int64_t bytes,
                      std::int64_t waiting) const {
  std::int64_t located = 0;
  std::int64_t unwritten = 0;
  for (const Extent& extent : extents) {
    located += static_cast<std::int64_t>(extent.bytes);
    std::uint64_t covered = 0;
    auto next = written_.upper_bound(extent.offset);
    if (next != written_.begin()) --next;
    for (; next != written_.end() && next->first < extent.end(); ++next) {
      const std::uint64_t begin = std::max(next->first, extent.offset);
      const std::uint64_t end = std::min(next->second, extent.end());
      if (begin < end) covered += end - begin;
    }
    unwritten += static_cast<std::int64_t>(extent.bytes - covered);
  }
  expect_holds(located == bytes, "a group's ranges hold " + std::to_string(located) + " of its " +
                                     std::to_string(bytes) + " bytes");
  expect_holds(unwritten <= waiting, "a group is read before " + std::to_string(unwritten) +
                                         " of its bytes were written");
}

void PlaceCheck::event(const StoredStream& stored, const GroupEvent& event) {
  const std::string_view fault = stored.groups().fault(event);
  expect_holds(fault.empty(), "an event has " + std::string(fault));
}

void PlaceCheck::end_step(std::span<const StoredStream* const> streams, const Cache& cache,
                          const Layout& layout, std::int64_t tokens) {
  std::vector<Extent> all;
  std::int64_t held_bytes = 0;
  for (std::size_t s = 0; s < streams.size(); ++s) {
    const StoredStream& stored = *streams[s];
    const Groups& groups = stored.groups();
    std::int64_t seen = 0;
    for (Token token = 0; token < tokens; ++token) {
      seen += groups.where(token) != Groups::Where::kUnseen ? 1 : 0;
    }
    std::int64_t placed = groups.grouped_tokens() + std::ssize(groups.buffered());
    for (Token token = 0; token < tokens; ++token) {
      placed += groups.where(token) == Groups::Where::kEvicted ? 1 : 0;
    }
    expect_holds(seen == placed, std::to_string(seen) + " tokens were seen, and " +
                                     std::to_string(placed) + " are in a place");
    const auto stream = static_cast<std::int32_t>(s);
    for (GroupId group = 0; group < groups.count(); ++group) {
      const bool held = !cache.holds_everything() && cache.contains({stream, group});
      if (held) {
        expect_holds(groups.live(group), "the cache holds a group without tokens");
        held_bytes += stored.group_bytes(group);
      }
      if (groups.live(group) && !cache.holds_everything()) {
        std::vector<Extent> alone;  // neighbours of other groups would be merged
        layout.locate(stream, group, stored, alone);
        all.insert(all.end(), alone.begin(), alone.end());
      }
    }
  }
  if (cache.holds_everything()) return;
  expect_holds(held_bytes == cache.used_bytes(), "the cache counts " +
                                                     std::to_string(cache.used_bytes()) +
                                                     " bytes of " + std::to_string(held_bytes));
  std::sort(all.begin(), all.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::uint64_t end = 0;
  for (const Extent& extent : all) {
    if (extent.bytes == 0) continue;
    expect_holds(extent.offset >= end,
                 "two live groups lie on byte " + std::to_string(extent.offset));
    end = extent.end();
  }
  expect_holds(end <= layout.region_bytes(), "a group lies beyond the layout's region");
}

}  // namespace kvreplay
