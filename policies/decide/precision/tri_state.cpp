#include <utility>

#include "policies/decide/precision/support/decoded_store.hpp"
#include "policies/decide/precision/support/key_form.hpp"
#include "policies/kernels/quantise.hpp"

namespace kvreplay {
namespace {

/// Entries in half precision or FP8, as kReencoded events say. (The third state is eviction.) A
/// token that returns to half precision keeps its decoded value: lost precision stays lost.
class TriState final : public Precision {
 public:
  TriState(KeyForm form, const Context& context) : form_(std::move(form)), store_(context) {}

  [[nodiscard]] std::vector<EntryFormat> formats() const override {
    return {{"fp16", 16, 0}, {"fp8", 8, 64}};
  }

  void add_tokens(const Entries& exact, Token begin, Token end, EventSink&) override {
    form_.learn(exact, begin, end);
    store_.put(exact, begin, end);
  }

  [[nodiscard]] bool accepts_reencoding() const override { return true; }

  void notify_event(const GroupEvent& event, const Groups&, const Entries&) override {
    if (event.kind != EventKind::kReencoded || event.other == 0) return;
    for (std::int64_t head = 0; head < store_.kv_heads(); ++head) {
      for (const Token token : event.tokens) {
        Half* const key = store_.key(head, token);
        form_.to_rounded(key, head, token);
        round_trip(key);
        form_.from_rounded(key, head, token);
        round_trip(store_.value(head, token));
      }
    }
  }

  [[nodiscard]] Entries decoded(const Entries& exact) override { return store_.decoded(exact); }
  [[nodiscard]] std::int64_t held_bytes() const override { return form_.held_bytes(); }

 private:
  void round_trip(Half* row) const {
    kernels::fp8_round_trip(row, store_.dim(), kernels::fp8_scale(row, store_.dim()), row);
  }

  KeyForm form_;
  DecodedStore store_;
};

const Registered<Precision> kTriState({
    .name = "tri_state",
    .help = "fp16, or FP8 E4M3 with a 4-byte scale, per token as the retention part decides",
    .source = "ARKV, FP8 cache; one scale per KV head (not per cache slot) is ours",
    .parameters = with_key_form({}),
    .make =
        [](const Arguments& arguments, const Precision::Context& context) {
          return std::make_unique<TriState>(KeyForm(arguments, context), context);
        },
});

}  // namespace
}  // namespace kvreplay
