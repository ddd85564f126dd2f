#include "policies/decide/precision/support/decoded_store.hpp"
#include "policies/kernels/quantise.hpp"

namespace kvreplay {
namespace {

/// Entries in half precision or FP8, as kReencoded events say. (The third state is eviction.) A
/// token that returns to half precision keeps its decoded value: lost precision stays lost.
class TriState final : public Precision {
 public:
  explicit TriState(const Context& context) : store_(context) {}

  [[nodiscard]] std::vector<EntryFormat> formats() const override {
    return {{"fp16", 16, 0}, {"fp8", 8, 64}};
  }

  void add_tokens(const Entries& exact, Token begin, Token end, EventSink&) override {
    store_.put(exact, begin, end);
  }

  [[nodiscard]] bool accepts_reencoding() const override { return true; }

  void notify_event(const GroupEvent& event, const Groups&, const Entries&) override {
    if (event.kind != EventKind::kReencoded || event.other == 0) return;
    for (std::int64_t head = 0; head < store_.kv_heads(); ++head) {
      for (const Token token : event.tokens) {
        round_trip(store_.key(head, token));
        round_trip(store_.value(head, token));
      }
    }
  }

  [[nodiscard]] Entries decoded(const Entries& exact) override { return store_.decoded(exact); }

 private:
  void round_trip(Half* row) const {
    kernels::fp8_round_trip(row, store_.dim(), kernels::fp8_scale(row, store_.dim()), row);
  }

  DecodedStore store_;
};

const Registered<Precision> kTriState({
    .name = "tri_state",
    .help = "fp16, or FP8 E4M3 with a 4-byte scale, per token as the retention part decides",
    .source = "ARKV, FP8 cache; one scale per KV head (not per cache slot) is ours",
    .parameters = {},
    .make = [](const Arguments&,
               const Precision::Context& context) { return std::make_unique<TriState>(context); },
});

}  // namespace
}  // namespace kvreplay
