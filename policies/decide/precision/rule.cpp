#include <algorithm>

#include "policies/decide/precision/support/channel_groups.hpp"
#include "policies/decide/precision/support/token_widths.hpp"

namespace kvreplay {
namespace {

constexpr std::size_t kEntropy = 0;

/// The less certain the model was, the wider the token: thresholds on the entropy, set at shares of
/// the prompt's tokens and fixed from then on.
class Rule final : public Precision {
 public:
  Rule(std::array<double, kFullWidth> shares, std::int64_t group, const Arguments& arguments,
       const Context& context)
      : features_(required_features(arguments, context)),
        shares_(shares),
        widths_(group, KeyForm(arguments, context), context) {}

  [[nodiscard]] std::vector<EntryFormat> formats() const override { return widths_.formats(); }

  void add_tokens(const Entries& exact, Token begin, Token end, EventSink& events) override {
    if (begin == 0) set_thresholds(end);
    std::vector<int> classes;
    for (Token token = begin; token < end; ++token) {
      const auto above = std::upper_bound(thresholds_.begin(), thresholds_.end(), entropy(token));
      classes.push_back(static_cast<int>(above - thresholds_.begin()));
    }
    widths_.add_tokens(exact, begin, classes, events);
  }

  [[nodiscard]] Entries decoded(const Entries& exact) override { return widths_.decoded(exact); }
  [[nodiscard]] std::int64_t held_bytes() const override { return widths_.held_bytes(); }

 private:
  [[nodiscard]] double entropy(Token token) const {
    return features_.rows[static_cast<std::size_t>(token)][kEntropy];
  }

  void set_thresholds(Token prompt_tokens) {
    std::vector<double> sorted;
    for (Token token = 0; token < prompt_tokens; ++token) sorted.push_back(entropy(token));
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      const double rank = shares_[i] * static_cast<double>(prompt_tokens);
      thresholds_[i] = sorted[std::min(static_cast<std::size_t>(rank), sorted.size() - 1)];
    }
  }

  const TokenFeatures& features_;
  std::array<double, kFullWidth> shares_;        // ascending
  std::array<double, kFullWidth> thresholds_{};  // entropies from which a token is wider, ascending
  TokenWidths widths_;
};

std::unique_ptr<Precision> make_rule(const Arguments& arguments,
                                     const Precision::Context& context) {
  const std::array<std::string_view, kFullWidth> names{"share_up_to_2_bits", "share_up_to_4_bits",
                                                       "share_up_to_8_bits"};
  std::array<double, kFullWidth> shares{};
  for (std::size_t i = 0; i < names.size(); ++i) {
    shares[i] = arguments.real(names[i]);
    if (i > 0 && shares[i] < shares[i - 1]) {
      throw UserError(arguments.place(names[i]), to_text(shares[i]),
                      "at least " + std::string(names[i - 1]) + ", " + to_text(shares[i - 1]));
    }
  }
  return std::make_unique<Rule>(shares, group_channels(arguments, context.shape), arguments,
                                context);
}

const Registered<Precision> kRule({
    .name = "rule",
    .help = "2, 4, 8 or 16 bits per token, by thresholds on the next token's entropy",
    .source = "Don't Waste Bits compares with a rule that it does not state; quartiles are ours",
    .parameters = with_key_form(
        {real_parameter("share_up_to_2_bits", "", 0.25, {0, 1},
                        "share of the prompt's tokens, least entropy first, at 2 bits"),
         real_parameter("share_up_to_4_bits", "", 0.5, {0, 1}, "share at 2 or 4 bits"),
         real_parameter("share_up_to_8_bits", "", 0.75, {0, 1},
                        "share at 2, 4 or 8 bits; the rest stays in half precision"),
         group_channels_parameter()}),
    .make = make_rule,
});

}  // namespace
}  // namespace kvreplay
