#include <utility>

#include "policies/decide/precision/support/channel_groups.hpp"
#include "policies/decide/precision/support/key_form.hpp"

namespace kvreplay {
namespace {

/// Every entry at one width, quantised per token.
class Int final : public Precision {
 public:
  Int(int bits, std::int64_t group, KeyForm form, const Context& context)
      : bits_(bits), group_(group), form_(std::move(form)), store_(context) {}

  [[nodiscard]] std::vector<EntryFormat> formats() const override {
    return {channel_group_format(bits_, group_)};
  }

  void add_tokens(const Entries& exact, Token begin, Token end, EventSink&) override {
    form_.learn(exact, begin, end);
    store_.put(exact, begin, end);
    for (std::int64_t head = 0; head < store_.kv_heads(); ++head) {
      for (Token token = begin; token < end; ++token) {
        Half* const key = store_.key(head, token);
        form_.to_rounded(key, head, token);
        round_trip_channel_groups(key, store_.dim(), group_, bits_);
        form_.from_rounded(key, head, token);
        round_trip_channel_groups(store_.value(head, token), store_.dim(), group_, bits_);
      }
    }
  }

  [[nodiscard]] Entries decoded(const Entries& exact) override { return store_.decoded(exact); }
  [[nodiscard]] std::int64_t held_bytes() const override { return form_.held_bytes(); }

 private:
  int bits_;
  std::int64_t group_;
  KeyForm form_;
  DecodedStore store_;
};

const Registered<Precision> kInt({
    .name = "int",
    .help = "integers of one width for keys and values, per token, over groups of channels",
    .source = "asymmetric minimum-maximum quantisation as in KIVI, section 2; static widths of "
              "Don't Waste Bits, whose quantiser is not stated: ours",
    .parameters = with_key_form({integer_parameter("bits", "bits", 4, {2, 8},
                                                   "width of a code, packed"),
                                 group_channels_parameter()}),
    .make =
        [](const Arguments& arguments, const Precision::Context& context) {
          return std::make_unique<Int>(static_cast<int>(arguments.integer("bits")),
                                       group_channels(arguments, context.shape),
                                       KeyForm(arguments, context), context);
        },
});

}  // namespace
}  // namespace kvreplay
