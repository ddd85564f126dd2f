#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "policies/decide/precision/support/decoded_store.hpp"
#include "policies/decide/precision/support/entry_bytes.hpp"
#include "policies/decide/precision/support/key_form.hpp"
#include "policies/kernels/quantise.hpp"

namespace kvreplay {
namespace {

template <typename Value>
std::array<Value, 256> of_codes(Value (*value)(std::uint8_t code)) {
  std::array<Value, 256> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values.at(i) = value(static_cast<std::uint8_t>(i));
  }
  return values;
}
const std::array<float, 256> kFp8Floats =
    of_codes<float>([](std::uint8_t code) { return kernels::fp8_to_float(code); });
const std::array<Half, 256> kFp8Halves =
    of_codes<Half>([](std::uint8_t code) { return to_half(kernels::fp8_to_float(code)); });

/// Key and value rows in FP8 E4M3, each with its own scale or with none.
class Fp8 final : public Precision {
 public:
  Fp8(bool scaled, KeyForm form, const Context& context)
      : scaled_(scaled),
        form_(std::move(form)),
        shape_(context.shape),
        leave_(context.entries_leave),
        store_(context) {}

  [[nodiscard]] std::vector<EntryFormat> formats() const override {
    return {{"fp8", 8, scaled_ ? 64.0 : 0.0}};
  }

  void add_tokens(const Entries& exact, Token begin, Token end, EventSink&) override {
    form_.learn(exact, begin, end);
    if (leave_) return;
    store_.put(exact, begin, end);
    for (std::int64_t head = 0; head < store_.kv_heads(); ++head) {
      for (Token token = begin; token < end; ++token) {
        Half* const key = store_.key(head, token);
        form_.to_rounded(key, head, token);
        round_trip(key);
        form_.from_rounded(key, head, token);
        round_trip(store_.value(head, token));
      }
    }
  }

  [[nodiscard]] Entries decoded(const Entries& exact) override { return store_.decoded(exact); }
  [[nodiscard]] std::int64_t out_of_range() const override { return out_of_range_; }
  [[nodiscard]] std::int64_t held_bytes() const override { return form_.held_bytes(); }

  [[nodiscard]] bool has_codec() const override { return true; }
  void encode(const Entries& exact, Token token, std::int32_t,
              std::span<std::byte> to) const override {
    EntryWriter writer(to);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(shape_.head_dim));
    std::vector<Half> key(codes.size());
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      std::copy_n(exact.keys.row(head, token), key.size(), key.begin());
      form_.to_rounded(key.data(), head, token);
      for (const Half* row : {std::as_const(key).data(), exact.values.row(head, token)}) {
        const float scale = scale_of(row);
        if (scaled_) writer.put(&scale, sizeof scale);
        std::transform(row, row + shape_.head_dim, codes.begin(),
                       [&](Half element) { return kernels::to_fp8(to_float(element) / scale); });
        writer.put(codes.data(), codes.size());
      }
    }
  }
  void decode(std::span<const std::byte> from, Token token, std::int32_t, Half* keys, Half* values,
              std::int64_t head_stride) const override {
    EntryReader reader(from);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(shape_.head_dim));
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      for (Half* row : {keys + head * head_stride, values + head * head_stride}) {
        float scale = 1.0F;
        if (scaled_) reader.take(&scale, sizeof scale);
        reader.take(codes.data(), codes.size());
        std::transform(codes.begin(), codes.end(), row, [&](std::uint8_t code) {
          return scaled_ ? to_half(kFp8Floats[code] * scale) : kFp8Halves[code];
        });
      }
      form_.from_rounded(keys + head * head_stride, head, token);
    }
  }

 private:
  /// Codes from here on lie 32 apart, and the last one is 448.
  static constexpr float kCoarseFrom = 256;

  [[nodiscard]] float scale_of(const Half* row) const {
    return scaled_ ? kernels::fp8_scale(row, shape_.head_dim) : 1.0F;
  }
  void round_trip(Half* row) {
    if (!scaled_) {
      out_of_range_ += std::count_if(row, row + shape_.head_dim, [](Half element) {
        return std::abs(to_float(element)) >= kCoarseFrom;
      });
    }
    kernels::fp8_round_trip(row, shape_.head_dim, scale_of(row), row);
  }

  bool scaled_;
  KeyForm form_;
  StreamShape shape_;
  bool leave_;
  std::int64_t out_of_range_ = 0;
  DecodedStore store_;
};

const Registered<Precision> kFp8({
    .name = "fp8",
    .help = "FP8 E4M3; by default a 4-byte scale per KV head for the key and one for the value",
    .source =
        "ARKV, FP8 cache: largest magnitude maps to 448; one scale per KV head is ours. DynaKV "
        "evaluates FP8 entries of 2 x head_dim bytes: scale none",
    .parameters = with_key_form(
        {choice_parameter("scale", {"token", "none"}, "token",
                          "one scale per token, KV head and vector, or a plain conversion")}),
    .make =
        [](const Arguments& arguments, const Precision::Context& context) {
          return std::make_unique<Fp8>(arguments.text("scale") == "token",
                                       KeyForm(arguments, context), context);
        },
});

}  // namespace
}  // namespace kvreplay
