#include "policies/decide/precision/support/token_widths.hpp"

#include <utility>

#include "policies/decide/precision/support/channel_groups.hpp"

namespace kvreplay {

double stored_bits(int width_class, std::int64_t group) {
  return width_class == kFullWidth
             ? 16
             : channel_group_format(kWidths[static_cast<std::size_t>(width_class)], group)
                   .bits_per_element;
}

TokenWidths::TokenWidths(std::int64_t group, KeyForm form, const Precision::Context& context)
    : group_(group), form_(std::move(form)), store_(context) {}

std::vector<EntryFormat> TokenWidths::formats() const {
  std::vector<EntryFormat> formats{{"fp16", 16, 0}};
  for (int c = kFullWidth - 1; c >= 0; --c) {
    formats.push_back(channel_group_format(kWidths[static_cast<std::size_t>(c)], group_));
  }
  return formats;
}

void TokenWidths::add_tokens(const Entries& exact, Token begin, std::span<const int> classes,
                             EventSink& events) {
  const Token end = begin + static_cast<Token>(classes.size());
  form_.learn(exact, begin, end);
  store_.put(exact, begin, end);
  std::vector<Token> tokens;
  for (int c = 0; c < kFullWidth; ++c) {
    tokens.clear();
    for (std::size_t i = 0; i < classes.size(); ++i) {
      if (classes[i] == c) tokens.push_back(begin + static_cast<Token>(i));
    }
    if (tokens.empty()) continue;
    const int bits = kWidths[static_cast<std::size_t>(c)];
    for (std::int64_t head = 0; head < store_.kv_heads(); ++head) {
      for (const Token token : tokens) {
        Half* const key = store_.key(head, token);
        form_.to_rounded(key, head, token);
        round_trip_channel_groups(key, store_.dim(), group_, bits);
        form_.from_rounded(key, head, token);
        round_trip_channel_groups(store_.value(head, token), store_.dim(), group_, bits);
      }
    }
    events.on_event({EventKind::kReencoded, kNoGroup, kFullWidth - c, tokens});
  }
}

const TokenFeatures& required_features(const Arguments& arguments,
                                       const Precision::Context& context) {
  if (context.features == nullptr) {
    throw UserError(arguments.place("part"),
                    "a width per token needs the model's token statistics, which this sequence "
                    "lacks",
                    "another precision, or a recording of `kvreplay record` to replay");
  }
  return context.features->features();
}

}  // namespace kvreplay
