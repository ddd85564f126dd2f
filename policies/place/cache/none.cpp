#include "policies/place/cache/cache.hpp"

namespace kvreplay {
namespace {

class None final : public Cache {
 public:
  bool access(const Access&, std::span<const Token>) override { return false; }
  void erase(GroupKey) override {}
  bool contains(GroupKey) const override { return false; }
  std::int64_t used_bytes() const override { return 0; }
};

const Registered<Cache> kNone({
    .name = "none",
    .help = "keeps nothing: every step reads all groups that it requests",
    .source = "FlexGen, InfiniGen on disk (KVSwap 5)",
    .parameters = {},
    .make = [](const Arguments&, const Cache::Context&) { return std::make_unique<None>(); },
});

}  // namespace
}  // namespace kvreplay
