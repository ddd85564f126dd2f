#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "policies/decide/precision/support/decoded_store.hpp"
#include "policies/decide/precision/support/key_form.hpp"
#include "policies/decide/precision/support/token_features.hpp"

namespace kvreplay {

/// The widths that a token can have: a class is an index into this list. 16 is half precision.
/// (Don't Waste Bits, section 3)
inline constexpr std::array<int, 4> kWidths{2, 4, 8, 16};
inline constexpr int kFullWidth = 3;

/// Bits per element of each class, including scale and minimum.
[[nodiscard]] double stored_bits(int width_class, std::int64_t group);

/// Entries whose width is chosen per token, one width for the key and the value of all heads;
/// quantised per token over groups of channels.
class TokenWidths {
 public:
  TokenWidths(std::int64_t group, KeyForm form, const Precision::Context& context);

  /// Half precision comes first: a token has it until it is taken.
  [[nodiscard]] std::vector<EntryFormat> formats() const;
  /// classes[i] is the width class of token begin + i.
  void add_tokens(const Entries& exact, Token begin, std::span<const int> classes,
                  EventSink& events);
  [[nodiscard]] Entries decoded(const Entries& exact) { return store_.decoded(exact); }
  [[nodiscard]] std::int64_t held_bytes() const { return form_.held_bytes(); }

 private:
  std::int64_t group_;
  KeyForm form_;
  DecodedStore store_;
};

/// The context's features; throws UserError, at the place of `arguments`, when the sequence has
/// none.
[[nodiscard]] const TokenFeatures& required_features(const Arguments& arguments,
                                                     const Precision::Context& context);

}  // namespace kvreplay
