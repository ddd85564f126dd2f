#include <algorithm>
#include <cassert>

#include "policies/layout/layout.hpp"
#include "policies/layout/space.hpp"

namespace kvreplay {
namespace {

/// A group's place: ranges that are filled one after the other, as a file's are.
struct Placed {
  std::vector<Extent> ranges;
  std::uint64_t used = 0;    // bytes filled, evicted entries' included
  std::vector<Token> order;  // as they lie, evicted ones included
  bool holes = false;        // some of `order` are evicted

  [[nodiscard]] std::uint64_t capacity() const {
    std::uint64_t bytes = 0;
    for (const Extent& range : ranges) bytes += range.bytes;
    return bytes;
  }
  /// Appends where bytes [begin, end) of the group lie.
  void find(std::uint64_t begin, std::uint64_t end, std::vector<Extent>& extents) const {
    for (const Extent& range : ranges) {
      if (begin >= end) break;
      if (begin < range.bytes) {
        const std::uint64_t here = std::min(end, range.bytes) - begin;
        extents.push_back({range.offset + begin, here});
        begin += here;
      }
      begin -= range.bytes;
      end -= range.bytes;
    }
    assert(begin >= end);
  }
};

/// A group is written to a range of exactly its size. When it grows beyond, it gets a further range
/// of a share of its size; it never moves. A split writes the remaining members anew in place, and
/// the new group to a range of its own. Evicted entries leave holes; an emptied group's ranges are
/// used again.
class Grouped final : public Layout {
 public:
  Grouped(const Arguments& arguments, const Context& context)
      : growth_share_(arguments.real("growth_share")),
        placed_(static_cast<std::size_t>(context.streams)) {}

  void on_event(std::int32_t stream, const GroupEvent& event, const StoredStream& stored,
                LayoutTraffic& traffic) override {
    switch (event.kind) {
      case EventKind::kCreated:
        write(stream, event.group, stored, traffic.writes);
        break;
      case EventKind::kAppended:
        append(stream, event, stored, traffic.writes);
        break;
      case EventKind::kSplit:
        if (stored.groups().live(event.group)) {
          write(stream, event.group, stored, traffic.writes);
        } else {
          clear(placed(stream, event.group));
        }
        write(stream, event.other, stored, traffic.writes);
        break;
      case EventKind::kEvicted:
        if (event.group == kNoGroup) break;
        if (stored.groups().live(event.group)) {
          placed(stream, event.group).holes = true;
        } else {
          clear(placed(stream, event.group));
        }
        break;
      case EventKind::kDissolved:
        clear(placed(stream, event.group));
        break;
      case EventKind::kReencoded: {
        std::vector<GroupId> changed;
        for (const Token token : event.tokens) {
          const GroupId group = stored.groups().group_of(token);
          if (group != kNoGroup) changed.push_back(group);
        }
        std::sort(changed.begin(), changed.end());
        changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
        for (const GroupId group : changed) write(stream, group, stored, traffic.writes);
        break;
      }
      case EventKind::kBuffered:
      case EventKind::kSealed:
      case EventKind::kLoaded:
        break;
    }
  }

  void locate(std::int32_t stream, GroupId group, const StoredStream& stored,
              std::vector<Extent>& extents) const override {
    const Placed& here = placed_[static_cast<std::size_t>(stream)][static_cast<std::size_t>(group)];
    if (!here.holes) {
      here.find(0, here.used, extents);
      return;
    }
    std::uint64_t at = 0;
    for (const Token token : here.order) {
      const auto bytes = static_cast<std::uint64_t>(stored.entry_bytes(token));
      if (stored.groups().group_of(token) == group) here.find(at, at + bytes, extents);
      at += bytes;
    }
  }

  std::uint64_t region_bytes() const override { return space_.region_bytes(); }

 private:
  [[nodiscard]] Placed& placed(std::int32_t stream, GroupId group) {
    std::vector<Placed>& groups = placed_[static_cast<std::size_t>(stream)];
    const auto index = static_cast<std::size_t>(group);
    if (index >= groups.size()) groups.resize(index + 1);
    return groups[index];
  }

  /// Writes all members from the start of the group's place.
  void write(std::int32_t stream, GroupId group, const StoredStream& stored,
             std::vector<Extent>& writes) {
    Placed& here = placed(stream, group);
    here.order = stored.groups().members(group);
    here.holes = false;
    here.used = static_cast<std::uint64_t>(stored.group_bytes(group));
    const std::uint64_t capacity = here.capacity();
    if (here.used > capacity) here.ranges.push_back(space_.take(here.used - capacity));
    std::uint64_t spare = here.capacity() - here.used;
    while (spare >= here.ranges.back().bytes) {
      spare -= here.ranges.back().bytes;
      space_.give_back(here.ranges.back());
      here.ranges.pop_back();
    }
    here.find(0, here.used, writes);
  }

  void append(std::int32_t stream, const GroupEvent& event, const StoredStream& stored,
              std::vector<Extent>& writes) {
    Placed& here = placed(stream, event.group);
    std::uint64_t end = here.used;
    for (const Token token : event.tokens) {
      end += static_cast<std::uint64_t>(stored.entry_bytes(token));
    }
    const std::uint64_t capacity = here.capacity();
    if (end > capacity) {
      const auto entries =
          static_cast<std::int64_t>(static_cast<double>(here.order.size()) * growth_share_);
      const auto growth =
          static_cast<std::uint64_t>(entries * stored.entry_bytes(event.tokens.front()));
      here.ranges.push_back(space_.take(std::max(end - capacity, growth)));
    }
    here.order.insert(here.order.end(), event.tokens.begin(), event.tokens.end());
    here.find(here.used, end, writes);
    here.used = end;
  }

  void clear(Placed& here) {
    for (const Extent& range : here.ranges) space_.give_back(range);
    here = {};
  }

  double growth_share_;
  Space space_;
  std::vector<std::vector<Placed>> placed_;  // by stream and group
};

const Registered<Layout> kGrouped({
    .name = "grouped",
    .help = "a group's entries side by side; a group that grows gets further ranges",
    .source = "DynaKV 4, grouped; the rule of growth is ours",
    .parameters = {real_parameter("growth_share", "", 0.25, {0, 16},
                                  "size of a further range as a share of the group's entries")},
    .make = [](const Arguments& arguments, const Layout::Context& context)
        -> std::unique_ptr<Layout> { return std::make_unique<Grouped>(arguments, context); },
});

}  // namespace
}  // namespace kvreplay
