#include <algorithm>
#include <cmath>

#include "policies/decide/precision/support/decoded_store.hpp"
#include "policies/kernels/quantise.hpp"

namespace kvreplay {
namespace {

/// Key and value rows in FP8 E4M3, each with its own scale or with none.
class Fp8 final : public Precision {
 public:
  Fp8(bool scaled, const Context& context) : scaled_(scaled), store_(context) {}

  [[nodiscard]] std::vector<EntryFormat> formats() const override {
    return {{"fp8", 8, scaled_ ? 64.0 : 0.0}};
  }

  void add_tokens(const Entries& exact, Token begin, Token end, EventSink&) override {
    store_.put(exact, begin, end);
    for (std::int64_t head = 0; head < store_.kv_heads(); ++head) {
      for (Token token = begin; token < end; ++token) {
        round_trip(store_.key(head, token));
        round_trip(store_.value(head, token));
      }
    }
  }

  [[nodiscard]] Entries decoded(const Entries& exact) override { return store_.decoded(exact); }
  [[nodiscard]] std::int64_t out_of_range() const override { return out_of_range_; }

 private:
  /// Codes from here on lie 32 apart, and the last one is 448.
  static constexpr float kCoarseFrom = 256;

  void round_trip(Half* row) {
    if (!scaled_) {
      out_of_range_ += std::count_if(row, row + store_.dim(), [](Half element) {
        return std::abs(to_float(element)) >= kCoarseFrom;
      });
    }
    const float scale = scaled_ ? kernels::fp8_scale(row, store_.dim()) : 1.0f;
    kernels::fp8_round_trip(row, store_.dim(), scale, row);
  }

  bool scaled_;
  std::int64_t out_of_range_ = 0;
  DecodedStore store_;
};

const Registered<Precision> kFp8({
    .name = "fp8",
    .help = "FP8 E4M3; by default a 4-byte scale per KV head for the key and one for the value",
    .source =
        "ARKV, FP8 cache: largest magnitude maps to 448; one scale per KV head is ours. DynaKV "
        "evaluates FP8 entries of 2 x head_dim bytes: scale none",
    .parameters = {choice_parameter(
        "scale", {"token", "none"}, "token",
        "one scale per token, KV head and vector, or a plain conversion")},
    .make =
        [](const Arguments& arguments, const Precision::Context& context) {
          return std::make_unique<Fp8>(arguments.text("scale") == "token", context);
        },
});

}  // namespace
}  // namespace kvreplay
