#include <algorithm>
#include <array>

#include "policies/place/layout/layout.hpp"
#include "policies/place/layout/support/co_retrieval.hpp"
#include "policies/place/layout/support/space.hpp"
#include "policies/place/layout/support/write_buffers.hpp"

namespace kvreplay {
namespace {

/// Two groups grow towards each other from the ends of a pool, so that an append moves nothing, and
/// both are one range once they have met. The prompt's pools are ordered by a chain of
/// co-retrieval. A split leaves one half where the group began. The other half takes the first free
/// end that has room, or a new pool, and so does a group that has outgrown its pool.
class DualHead final : public Layout {
 public:
  DualHead(const Arguments& arguments, const Context& context)
      : headroom_share_(arguments.real("headroom_share")),
        buffers_(arguments),
        window_(context.window),
        streams_(static_cast<std::size_t>(context.streams)) {
    window_.resize(streams_.size());
  }

  void notify_event(std::int32_t s, const GroupEvent& event, const StoredStream& stored,
                    LayoutTraffic& traffic) override {
    switch (event.kind) {
      case EventKind::kCreated:
        put(s, event.group, stored, traffic);
        break;
      case EventKind::kAppended:
        append(s, event, stored, traffic);
        break;
      case EventKind::kSplit:
        rewrite(s, event.group, stored, traffic);
        put(s, event.other, stored, traffic);
        break;
      case EventKind::kEvicted:
        if (event.group == kNoGroup) break;
        if (stored.groups().live(event.group)) {
          end_of(s, event.group).holes = true;
        } else {
          remove(s, event.group);
        }
        break;
      case EventKind::kDissolved:
        remove(s, event.group);
        break;
      case EventKind::kReencoded:
        for (const GroupId group : stored.groups().groups_of(event.tokens)) {
          rewrite(s, group, stored, traffic);
        }
        break;
      case EventKind::kBuffered:
      case EventKind::kSealed:
      case EventKind::kLoaded:
        break;
    }
  }

  void end_prompt(std::int32_t s, const StoredStream& stored, LayoutTraffic& traffic) override {
    Stream& stream = streams_[static_cast<std::size_t>(s)];
    std::vector<GroupId> groups;
    std::int64_t max = 0;
    for (GroupId group = 0; group < stored.groups().count(); ++group) {
      if (!stored.groups().live(group)) continue;
      groups.push_back(group);
      max = std::max(max, stored.group_bytes(group));
      remove(s, group);
    }
    for (const Pool& pool : stream.pools) space_.give_back(pool.range);
    stream.pools.clear();
    stream.pool_bytes =
        2 * static_cast<std::uint64_t>(static_cast<double>(max) * (1 + headroom_share_));
    for (const GroupPair& pair : chains_.of(window_[static_cast<std::size_t>(s)], groups)) {
      add_pool(stream, 0);
      const std::size_t pool = stream.pools.size() - 1;
      put_at(s, pair.left, {pool, 0}, stored, traffic);
      if (pair.right != kNoGroup) put_at(s, pair.right, {pool, 1}, stored, traffic);
    }
  }

  void locate(std::int32_t s, GroupId group, const StoredStream& stored,
              std::vector<Extent>& extents) const override {
    const Stream& stream = streams_[static_cast<std::size_t>(s)];
    const Slot slot = stream.slots[static_cast<std::size_t>(group)];
    const Pool& pool = stream.pools[slot.pool];
    const End& end = pool.ends[slot.end];
    if (!end.holes) {
      extents.push_back(pool.range_of(slot.end, 0, end.used));
      return;
    }
    std::uint64_t at = 0;
    for (const Token token : end.order) {
      const auto bytes = static_cast<std::uint64_t>(stored.entry_bytes(token));
      if (stored.groups().group_of(token) == group) {
        extents.push_back(pool.range_of(slot.end, at, at + bytes));
      }
      at += bytes;
    }
  }

  void locate_entries(std::int32_t s, GroupId group, const StoredStream& stored,
                      std::vector<EntryPiece>& pieces) const override {
    const Stream& stream = streams_[static_cast<std::size_t>(s)];
    const Slot slot = stream.slots[static_cast<std::size_t>(group)];
    const Pool& pool = stream.pools[slot.pool];
    std::uint64_t at = 0;
    for (const Token token : pool.ends[slot.end].order) {
      const auto bytes = static_cast<std::uint64_t>(stored.entry_bytes(token));
      if (stored.groups().group_of(token) == group) {
        pieces.push_back({token, 0, pool.range_of(slot.end, at, at + bytes)});
      }
      at += bytes;
    }
  }

  std::uint64_t region_bytes() const override {
    return buffers_.whole_pages(space_.region_bytes());
  }
  [[nodiscard]] bool needs_window() const override { return true; }
  [[nodiscard]] std::int64_t held_bytes() const override { return buffers_.held_bytes(); }

 private:
  /// One end of a pool, with the group that grows from it.
  struct End {
    GroupId group = kNoGroup;
    std::uint64_t used = 0;    // bytes filled, including evicted entries
    std::vector<Token> order;  // from the pool's end inward, including evicted ones
    bool holes = false;        // some of `order` are evicted
  };
  struct Pool {
    Extent range;
    std::array<End, 2> ends;  // lower, upper

    /// Where bytes [begin, end) of a group lie, counted from its end of the pool inward.
    [[nodiscard]] Extent range_of(std::size_t which, std::uint64_t begin, std::uint64_t end) const {
      return {which == 0 ? range.offset + begin : range.end() - end, end - begin};
    }
    [[nodiscard]] std::uint64_t room(std::size_t which) const {
      return range.bytes - ends[1 - which].used;
    }
  };
  struct Slot {
    std::size_t pool = 0;
    std::size_t end = 0;
  };
  struct Stream {
    std::vector<Pool> pools;
    std::vector<Slot> slots;       // by group
    std::uint64_t pool_bytes = 0;  // lower limit per pool
  };

  [[nodiscard]] End& end_of(std::int32_t s, GroupId group) {
    Stream& stream = streams_[static_cast<std::size_t>(s)];
    const Slot slot = stream.slots[static_cast<std::size_t>(group)];
    return stream.pools[slot.pool].ends[slot.end];
  }

  void add_pool(Stream& stream, std::uint64_t group_bytes) {
    stream.pools.push_back({space_.take(std::max(stream.pool_bytes, 2 * group_bytes)), {}});
  }

  [[nodiscard]] Slot find_slot(Stream& stream, std::uint64_t bytes) {
    for (std::size_t pool = 0; pool < stream.pools.size(); ++pool) {
      for (const std::size_t end : {0u, 1u}) {
        const Pool& candidate = stream.pools[pool];
        if (candidate.ends[end].group == kNoGroup && candidate.room(end) >= bytes) {
          return {pool, end};
        }
      }
    }
    add_pool(stream, bytes);
    return {stream.pools.size() - 1, 0};
  }

  /// Writes all members of a group that has no slot.
  void put(std::int32_t s, GroupId group, const StoredStream& stored, LayoutTraffic& traffic) {
    Stream& stream = streams_[static_cast<std::size_t>(s)];
    const auto bytes = static_cast<std::uint64_t>(stored.group_bytes(group));
    put_at(s, group, find_slot(stream, bytes), stored, traffic);
  }
  void put_at(std::int32_t s, GroupId group, Slot slot, const StoredStream& stored,
              LayoutTraffic& traffic) {
    Stream& stream = streams_[static_cast<std::size_t>(s)];
    const auto index = static_cast<std::size_t>(group);
    if (index >= stream.slots.size()) stream.slots.resize(index + 1);
    stream.slots[index] = slot;
    Pool& pool = stream.pools[slot.pool];
    pool.ends[slot.end] = {group, static_cast<std::uint64_t>(stored.group_bytes(group)),
                           stored.groups().members(group), false};
    traffic.writes.push_back(pool.range_of(slot.end, 0, pool.ends[slot.end].used));
  }

  void remove(std::int32_t s, GroupId group) {
    buffers_.forget(s, group);
    end_of(s, group) = {};
  }

  /// Rewrites what is left of a group, which is in memory; in place if possible.
  void rewrite(std::int32_t s, GroupId group, const StoredStream& stored, LayoutTraffic& traffic) {
    Stream& stream = streams_[static_cast<std::size_t>(s)];
    const Slot slot = stream.slots[static_cast<std::size_t>(group)];
    remove(s, group);
    if (!stored.groups().live(group)) return;
    const auto bytes = static_cast<std::uint64_t>(stored.group_bytes(group));
    const bool fits = bytes <= stream.pools[slot.pool].room(slot.end);
    put_at(s, group, fits ? slot : find_slot(stream, bytes), stored, traffic);
  }

  void append(std::int32_t s, const GroupEvent& event, const StoredStream& stored,
              LayoutTraffic& traffic) {
    Stream& stream = streams_[static_cast<std::size_t>(s)];
    const Slot slot = stream.slots[static_cast<std::size_t>(event.group)];
    Pool& pool = stream.pools[slot.pool];
    End& end = pool.ends[slot.end];
    std::uint64_t used = end.used;
    for (const Token token : event.tokens) {
      used += static_cast<std::uint64_t>(stored.entry_bytes(token));
    }
    if (used > pool.room(slot.end)) {
      traffic.moved_reads.push_back(pool.range_of(slot.end, 0, end.used));
      remove(s, event.group);
      put(s, event.group, stored, traffic);
      return;
    }
    const Extent extent = pool.range_of(slot.end, end.used, used);
    end.order.insert(end.order.end(), event.tokens.begin(), event.tokens.end());
    end.used = used;
    buffers_.append(s, event.group, {&extent, 1}, traffic);
  }

  double headroom_share_;
  WriteBuffers buffers_;
  std::vector<WindowSelections> window_;  // by stream
  PairChains chains_;
  Space space_;
  std::vector<Stream> streams_;
};

std::vector<Parameter> dual_head_parameters() {
  std::vector<Parameter> all{
      real_parameter("headroom_share", "", 0.25, {0, 16},
                     "room per pool beyond twice the prompt's largest group, as a share of that")};
  for (Parameter& parameter : WriteBuffers::parameters()) all.push_back(std::move(parameter));
  all.push_back(merge_reads_parameter());
  return all;
}

const Registered<Layout> kDualHead({
    .name = "dual_head",
    .help = "two co-retrieved groups share a pool and grow towards each other",
    .source = "DynaKV 4, dual-head pools; headroom, first fit and the greedy chain are ours",
    .parameters = dual_head_parameters(),
    .make = [](const Arguments& arguments, const Layout::Context& context)
        -> std::unique_ptr<Layout> { return std::make_unique<DualHead>(arguments, context); },
});

}  // namespace
}  // namespace kvreplay
