#include "policies/place/cache/cache.hpp"

namespace kvreplay {
namespace {

class Resident final : public Cache {
 public:
  bool access(const Access&, std::span<const Token>) override { return true; }
  void erase(GroupKey) override {}
  bool contains(GroupKey) const override { return true; }
  /// The caller keeps the bytes of the groups: this cache is never notified of a new one.
  std::int64_t used_bytes() const override { return 0; }
  bool holds_everything() const override { return true; }
};

const Registered<Cache> kResident({
    .name = "resident",
    .help = "everything stays in DRAM; nothing is read or written",
    .source = "in-memory systems: vLLM, StreamingLLM, H2O, SnapKV, KIVI, ARKV",
    .parameters = {},
    .make = [](const Arguments&, const Cache::Context&) { return std::make_unique<Resident>(); },
});

}  // namespace
}  // namespace kvreplay
