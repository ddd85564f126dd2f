#pragma once

#include <cstdint>
#include <string>

#include "policies/decide/precision/support/decoded_store.hpp"

namespace kvreplay {

/// Bits of the scale and the minimum of a quantised group, both in half precision.
inline constexpr double kGroupOverheadBits = 32;

/// "group_channels": a token's vector is quantised in groups of this many channels.
[[nodiscard]] Parameter group_channels_parameter();
/// Its value; throws UserError unless it divides head_dim.
[[nodiscard]] std::int64_t group_channels(const Arguments& arguments, const StreamShape& shape);

/// Key and value in `bits`-wide integers, quantised per token over groups of channels.
[[nodiscard]] EntryFormat channel_group_format(int bits, std::int64_t group);

/// Encodes and decodes one row of `dim` elements in place.
void round_trip_channel_groups(Half* row, std::int64_t dim, std::int64_t group, int bits);

}  // namespace kvreplay
