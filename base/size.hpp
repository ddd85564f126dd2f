#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvreplay {

/// Bytes of a size with its unit: "64KiB", "1.5 MiB", "4kB", "512B". kB, MB, GB, TB are powers of
/// 1000, KiB, MiB, GiB, TiB powers of 1024; KB is read as kB. Returns nothing when the text is not
/// such a size, is not a whole number of bytes, or exceeds 2^53 bytes.
[[nodiscard]] std::optional<std::int64_t> parse_size(std::string_view text);

/// The same with one decimal, in the largest power-of-1024 unit that does not exceed it: "1.5 MiB".
[[nodiscard]] std::string size_text(std::int64_t bytes);

}  // namespace kvreplay
