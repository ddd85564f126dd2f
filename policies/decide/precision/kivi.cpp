#include <algorithm>
#include <numeric>

#include "policies/decide/precision/support/channel_groups.hpp"
#include "policies/kernels/quantise.hpp"

namespace kvreplay {
namespace {

/// Keys are quantised per channel over groups of tokens, values per token over groups of channels.
/// The newest keys (fewer than `residual`, quantised all at once when they reach it) and the newest
/// `residual` values stay in half precision. A value is older than its key's residual when it is
/// quantised, so three formats are enough.
class Kivi final : public Precision {
 public:
  Kivi(int bits, std::int64_t group, std::int64_t residual, const Context& context)
      : bits_(bits), group_(group), residual_(residual), store_(context) {}

  [[nodiscard]] std::vector<EntryFormat> formats() const override {
    const std::string name = "int" + std::to_string(bits_);
    const double bits = bits_ + kGroupOverheadBits / static_cast<double>(group_);
    return {{"fp16", 16, 0, true}, {"key_" + name, (bits + 16) / 2, 0, true}, {name, bits, 0}};
  }

  void add_tokens(const Entries& exact, Token begin, Token end, EventSink& events) override {
    store_.put(exact, begin, end);
    const auto key_end = static_cast<Token>(end / residual_ * residual_);
    const auto value_end = static_cast<Token>(std::max<std::int64_t>(end - residual_, 0));
    quantise_keys(quantised_keys_, key_end);
    quantise_values(quantised_values_, value_end);
    reencode(std::max(quantised_keys_, value_end), key_end, 1, events);
    reencode(quantised_values_, value_end, 2, events);
    quantised_keys_ = key_end;
    quantised_values_ = value_end;
  }

  [[nodiscard]] Entries decoded(const Entries& exact) override { return store_.decoded(exact); }

 private:
  /// The group divides the residual, so begin and end are multiples of the group.
  void quantise_keys(Token begin, Token end) {
    for (std::int64_t head = 0; head < store_.kv_heads(); ++head) {
      for (Token token = begin; token < end; token += static_cast<Token>(group_)) {
        for (std::int64_t channel = 0; channel < store_.dim(); ++channel) {
          Half* first = store_.key(head, token) + channel;
          kernels::int_round_trip(first, group_, store_.dim(), bits_, first);
        }
      }
    }
  }

  void quantise_values(Token begin, Token end) {
    for (std::int64_t head = 0; head < store_.kv_heads(); ++head) {
      for (Token token = begin; token < end; ++token) {
        round_trip_channel_groups(store_.value(head, token), store_.dim(), group_, bits_);
      }
    }
  }

  static void reencode(Token begin, Token end, std::int32_t format, EventSink& events) {
    if (begin >= end) return;
    std::vector<Token> tokens(static_cast<std::size_t>(end - begin));
    std::iota(tokens.begin(), tokens.end(), begin);
    events.on_event({EventKind::kReencoded, kNoGroup, format, tokens});
  }

  int bits_;
  std::int64_t group_;
  std::int64_t residual_;
  Token quantised_keys_ = 0;    // keys of earlier tokens are quantised
  Token quantised_values_ = 0;  // the same for values; never more than keys
  DecodedStore store_;
};

std::unique_ptr<Precision> make_kivi(const Arguments& arguments,
                                     const Precision::Context& context) {
  const std::int64_t group = arguments.integer("group_size");
  const std::int64_t residual = arguments.integer("residual_tokens");
  if (context.shape.head_dim % group != 0) {
    throw UserError(arguments.place("group_size"), std::to_string(group),
                    "a divisor of the head dimension " + std::to_string(context.shape.head_dim));
  }
  if (residual % group != 0) {
    throw UserError(arguments.place("residual_tokens"), std::to_string(residual),
                    "a multiple of group_size " + std::to_string(group));
  }
  return std::make_unique<Kivi>(static_cast<int>(arguments.integer("bits")), group, residual,
                                context);
}

const Registered<Precision> kKivi({
    .name = "kivi",
    .help = "keys per channel over tokens, values per token over channels; the newest stay fp16",
    .source = "KIVI (Liu et al., 2024), section 3; defaults of its published LongBench runs",
    .parameters = {integer_parameter("bits", "bits", 2, {2, 8}, "width of a code, packed"),
                   integer_parameter("group_size", "", 32, {1, 4096},
                                     "tokens of a key group and channels of a value group"),
                   integer_parameter("residual_tokens", "tokens", 128, {1, 65536},
                                     "newest values kept in fp16; fewer keys than this are kept")},
    .make = make_kivi,
});

}  // namespace
}  // namespace kvreplay
