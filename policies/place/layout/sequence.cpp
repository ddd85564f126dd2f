#include <algorithm>

#include "policies/place/layout/layout.hpp"

namespace kvreplay {
namespace {

/// Every token has a slot of the largest entry's size, token after token and stream after stream.
/// An entry is written when it first joins a group, and stays in its slot when groups change.
class Sequence final : public Layout {
 public:
  explicit Sequence(const Context& context)
      : slot_bytes_(static_cast<std::uint64_t>(context.entry_bytes)),
        max_tokens_(static_cast<std::uint64_t>(context.max_tokens)),
        on_flash_(static_cast<std::size_t>(context.streams),
                  std::vector<bool>(static_cast<std::size_t>(context.max_tokens))) {}

  void notify_event(std::int32_t stream, const GroupEvent& event, const StoredStream& stored,
                    LayoutTraffic& traffic) override {
    std::vector<bool>& on_flash = on_flash_[static_cast<std::size_t>(stream)];
    switch (event.kind) {
      case EventKind::kCreated:
      case EventKind::kAppended:
        for (const Token token : event.tokens) {
          if (on_flash.at(static_cast<std::size_t>(token))) continue;
          on_flash[static_cast<std::size_t>(token)] = true;
          add(extent(stream, token, stored), traffic.writes);
        }
        break;
      case EventKind::kReencoded:
        for (const Token token : event.tokens) {
          const bool grouped = stored.groups().where(token) == Groups::Where::kGrouped;
          on_flash.at(static_cast<std::size_t>(token)) = grouped;
          if (grouped) add(extent(stream, token, stored), traffic.writes);
        }
        break;
      default:
        break;
    }
  }

  void locate(std::int32_t stream, GroupId group, const StoredStream& stored,
              std::vector<Extent>& extents) const override {
    for (const Token token : stored.groups().members(group)) {
      add(extent(stream, token, stored), extents);
    }
  }

  std::uint64_t region_bytes() const override {
    return on_flash_.size() * max_tokens_ * slot_bytes_;
  }

 private:
  [[nodiscard]] Extent extent(std::int32_t stream, Token token, const StoredStream& stored) const {
    const std::uint64_t slot =
        static_cast<std::uint64_t>(stream) * max_tokens_ + static_cast<std::uint64_t>(token);
    return {slot * slot_bytes_, static_cast<std::uint64_t>(stored.entry_bytes(token))};
  }
  static void add(Extent extent, std::vector<Extent>& extents) {
    if (!extents.empty() && extents.back().end() == extent.offset) {
      extents.back().bytes += extent.bytes;
    } else {
      extents.push_back(extent);
    }
  }

  std::uint64_t slot_bytes_;
  std::uint64_t max_tokens_;
  std::vector<std::vector<bool>> on_flash_;  // by stream and token: its slot holds its entry
};

const Registered<Layout> kSequence({
    .name = "sequence",
    .help = "entries in token order, one stream after the other",
    .source = "DynaKV 4, the baseline; FlexGen, InfiniGen on disk",
    .parameters = {},
    .make = [](const Arguments&,
               const Layout::Context& context) { return std::make_unique<Sequence>(context); },
});

}  // namespace
}  // namespace kvreplay
