#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "policies/decide/precision/support/decoded_store.hpp"
#include "policies/decide/precision/support/token_features.hpp"

namespace kvreplay {

/// The widths among which a token's one is chosen: a class is an index into it. 16 is half
/// precision. (Don't Waste Bits, section 3)
inline constexpr std::array<int, 4> kWidths{2, 4, 8, 16};
inline constexpr int kFullWidth = 3;

/// Bits an element of each class, with scale and minimum.
[[nodiscard]] double stored_bits(int width_class, std::int64_t group);

/// Entries whose width is chosen token by token, one width for the key and the value of all heads;
/// quantised by token over groups of channels.
class TokenWidths {
 public:
  TokenWidths(std::int64_t group, const Precision::Context& context);

  /// Half precision first: what a token has until it is taken.
  [[nodiscard]] std::vector<EntryFormat> formats() const;
  /// classes[i] is the width class of token begin + i.
  void take(const Entries& exact, Token begin, std::span<const int> classes, EventSink& events);
  [[nodiscard]] Entries decoded(const Entries& exact) { return store_.decoded(exact); }

 private:
  std::int64_t group_;
  DecodedStore store_;
};

/// The context's features; a UserError when the sequence has none.
[[nodiscard]] const TokenFeatures& required_features(const Precision::Context& context);

}  // namespace kvreplay
