#include <algorithm>
#include <cassert>

#include "policies/place/layout/layout.hpp"

namespace kvreplay {
namespace {

/// Each stream has a region for all its tokens. Its groups lie in it back to back in order of
/// creation, with the new half of a split right behind the old one. When a group grows or shrinks,
/// everything behind it is read and written again. This shows the cost of leaving no room.
class Packed final : public Layout {
 public:
  explicit Packed(const Context& context)
      : stream_bytes_(static_cast<std::uint64_t>(context.max_tokens * context.entry_bytes)),
        streams_(static_cast<std::size_t>(context.streams)) {}

  void notify_event(std::int32_t stream, const GroupEvent& event, const StoredStream& stored,
                    LayoutTraffic& traffic) override {
    Stream& here = streams_[static_cast<std::size_t>(stream)];
    here.rewritten.clear();
    bool in_memory = true;
    switch (event.kind) {
      case EventKind::kCreated:
        here.add(event.group, here.order.end());
        break;
      case EventKind::kSplit:
        here.add(event.other, std::find(here.order.begin(), here.order.end(), event.group) + 1);
        here.rewritten = {event.group, event.other};
        break;
      case EventKind::kReencoded:
        for (const Token token : event.tokens) {
          const GroupId group = stored.groups().group_of(token);
          if (group != kNoGroup) here.rewritten.push_back(group);
        }
        break;
      case EventKind::kEvicted:
        if (event.group == kNoGroup) return;
        here.rewritten = {event.group};
        in_memory = false;  // what lies behind the gap moves into it
        break;
      case EventKind::kAppended:
      case EventKind::kDissolved:
        break;
      case EventKind::kBuffered:
      case EventKind::kSealed:
      case EventKind::kLoaded:
        return;
    }
    shift(stream, here, in_memory, stored, traffic);
  }

  void locate(std::int32_t stream, GroupId group, const StoredStream&,
              std::vector<Extent>& extents) const override {
    const Stream& here = streams_[static_cast<std::size_t>(stream)];
    extents.push_back(here.placed[static_cast<std::size_t>(group)]);
  }

  std::uint64_t region_bytes() const override { return stream_bytes_ * streams_.size(); }

 private:
  struct Stream {
    std::vector<GroupId> order;      // live groups as they lie
    std::vector<Extent> placed;      // by group
    std::vector<GroupId> rewritten;  // by the current event

    void add(GroupId group, std::vector<GroupId>::iterator before) {
      order.insert(before, group);
      placed.resize(std::max(placed.size(), static_cast<std::size_t>(group) + 1));
    }
  };

  /// Updates the places to the groups' sizes. `in_memory`: whether the rewritten groups are in
  /// memory.
  void shift(std::int32_t stream, Stream& here, bool in_memory, const StoredStream& stored,
             LayoutTraffic& traffic) {
    std::uint64_t offset = static_cast<std::uint64_t>(stream) * stream_bytes_;
    for (const GroupId group : here.order) {
      const Extent before = here.placed[static_cast<std::size_t>(group)];
      const Extent now{offset, static_cast<std::uint64_t>(stored.group_bytes(group))};
      here.placed[static_cast<std::size_t>(group)] = now;
      offset = now.end();
      const bool rewritten =
          std::find(here.rewritten.begin(), here.rewritten.end(), group) != here.rewritten.end();
      if (now.bytes == 0 || (now == before && !rewritten)) continue;
      if (now.offset == before.offset && !rewritten) {
        traffic.writes.push_back({before.end(), now.bytes - before.bytes});
        continue;
      }
      if (before.bytes > 0 && !(rewritten && in_memory)) traffic.moved_reads.push_back(before);
      traffic.writes.push_back(now);
    }
    std::erase_if(here.order, [&](GroupId group) { return !stored.groups().live(group); });
  }

  std::uint64_t stream_bytes_;
  std::vector<Stream> streams_;
};

const Registered<Layout> kPacked({
    .name = "packed",
    .help = "groups lie back to back; a group that grows moves everything behind it",
    .source = "DynaKV 4, the baseline of dual-head pools",
    .parameters = {},
    .make = [](const Arguments&,
               const Layout::Context& context) { return std::make_unique<Packed>(context); },
});

}  // namespace
}  // namespace kvreplay
