#include <algorithm>
#include <cassert>

#include "policies/place/layout/layout.hpp"
#include "policies/place/layout/support/co_retrieval.hpp"
#include "policies/place/layout/support/space.hpp"
#include "policies/place/layout/support/write_buffers.hpp"

namespace kvreplay {
namespace {

/// A group's place: ranges that are filled one after the other, like those of a file.
struct Placed {
  std::vector<Extent> ranges;
  std::uint64_t used = 0;    // bytes filled, including evicted entries
  std::vector<Token> order;  // as they lie, including evicted ones
  bool holes = false;        // some of `order` are evicted

  [[nodiscard]] std::uint64_t capacity() const {
    std::uint64_t bytes = 0;
    for (const Extent& range : ranges) bytes += range.bytes;
    return bytes;
  }
  /// Appends the extents of bytes [begin, end) of the group.
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

/// A group is written to a range of exactly its size and never moves. When it outgrows its ranges,
/// it gets a further one, whose size is a share of the group's. A split rewrites the remaining
/// members in place and writes the new group to a range of its own. Evicted entries leave holes;
/// the ranges of an emptied group are reused. The prompt's groups lie in order of creation, or in
/// that of a chain of co-retrieval.
class Grouped final : public Layout {
 public:
  enum class Order { kCreation, kCoRetrieval };

  Grouped(Order order, const Arguments& arguments, const Context& context)
      : order_(order),
        growth_share_(arguments.real("growth_share")),
        buffers_(arguments),
        window_(context.window),
        placed_(static_cast<std::size_t>(context.streams)) {
    window_.resize(placed_.size());
  }

  void notify_event(std::int32_t stream, const GroupEvent& event, const StoredStream& stored,
                    LayoutTraffic& traffic) override {
    switch (event.kind) {
      case EventKind::kCreated:
        write(stream, event.group, stored, traffic.writes);
        break;
      case EventKind::kAppended:
        append(stream, event, stored, traffic);
        break;
      case EventKind::kSplit:
        if (stored.groups().live(event.group)) {
          write(stream, event.group, stored, traffic.writes);
        } else {
          clear(stream, event.group);
        }
        write(stream, event.other, stored, traffic.writes);
        break;
      case EventKind::kEvicted:
        if (event.group == kNoGroup) break;
        if (stored.groups().live(event.group)) {
          placed(stream, event.group).holes = true;
        } else {
          clear(stream, event.group);
        }
        break;
      case EventKind::kDissolved:
        clear(stream, event.group);
        break;
      case EventKind::kReencoded:
        for (const GroupId group : stored.groups().groups_of(event.tokens)) {
          write(stream, group, stored, traffic.writes);
        }
        break;
      case EventKind::kBuffered:
      case EventKind::kSealed:
      case EventKind::kLoaded:
        break;
    }
  }

  void end_prompt(std::int32_t stream, const StoredStream& stored,
                  LayoutTraffic& traffic) override {
    if (order_ == Order::kCreation) return;
    std::vector<GroupId> groups;
    for (GroupId group = 0; group < stored.groups().count(); ++group) {
      if (!stored.groups().live(group)) continue;
      groups.push_back(group);
      clear(stream, group);
    }
    for (const GroupPair& pair : chains_.of(window_[static_cast<std::size_t>(stream)], groups)) {
      write(stream, pair.left, stored, traffic.writes);
      if (pair.right != kNoGroup) write(stream, pair.right, stored, traffic.writes);
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

  std::uint64_t region_bytes() const override {
    return buffers_.whole_pages(space_.region_bytes());
  }
  [[nodiscard]] bool needs_window() const override { return order_ == Order::kCoRetrieval; }
  [[nodiscard]] std::int64_t held_bytes() const override { return buffers_.held_bytes(); }

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
    buffers_.forget(stream, group);
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
              LayoutTraffic& traffic) {
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
    std::vector<Extent> extents;
    here.find(here.used, end, extents);
    here.used = end;
    buffers_.append(stream, event.group, extents, traffic);
  }

  void clear(std::int32_t stream, GroupId group) {
    buffers_.forget(stream, group);
    Placed& here = placed(stream, group);
    for (const Extent& range : here.ranges) space_.give_back(range);
    here = {};
  }

  Order order_;
  double growth_share_;
  WriteBuffers buffers_;
  std::vector<WindowSelections> window_;  // by stream
  PairChains chains_;
  Space space_;
  std::vector<std::vector<Placed>> placed_;  // by stream and group
};

std::vector<Parameter> grouped_parameters() {
  std::vector<Parameter> all{
      real_parameter("growth_share", "", 0.25, {0, 16},
                     "size of a further range as a share of the group's entries")};
  for (Parameter& parameter : WriteBuffers::parameters()) all.push_back(std::move(parameter));
  all.push_back(merge_reads_parameter());
  return all;
}

template <Grouped::Order order>
std::unique_ptr<Layout> make(const Arguments& arguments, const Layout::Context& context) {
  return std::make_unique<Grouped>(order, arguments, context);
}

const Registered<Layout> kGrouped({
    .name = "grouped",
    .help = "each group's entries lie side by side; a group that grows gets further ranges",
    .source = "DynaKV 4, grouped; the rule of growth is ours",
    .parameters = grouped_parameters(),
    .make = make<Grouped::Order::kCreation>,
});

const Registered<Layout> kCorrelated({
    .name = "correlated",
    .help = "grouped, with the prompt's groups ordered so that co-retrieved ones are neighbours",
    .source = "DynaKV 4, correlation; the greedy chain and the rule of growth are ours",
    .parameters = grouped_parameters(),
    .make = make<Grouped::Order::kCoRetrieval>,
});

}  // namespace
}  // namespace kvreplay
