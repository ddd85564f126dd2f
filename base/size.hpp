#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvreplay {

/// Bytes of a size, in the one grammar of every option and config:
///   512 or 512B             bytes
///   4kB, 4KB, 2MB, 2GB, 1TB     powers of 1000
///   4KiB, 1.5MiB, 2GiB, 1TiB    powers of 1024
///   4K, 2M, 2G, 1T              short for KiB, MiB, GiB, TiB, as in coreutils and fio; lower case,
///                               too, and after a whole number only
/// One space may stand before the unit. A fraction must give a whole number of bytes. None when the
/// text is no such size, or is above 2^62 bytes.
[[nodiscard]] std::optional<std::int64_t> parse_size(std::string_view text);

/// The same for texts with a unit only, for places where a plain number has a type of its own, such
/// as JSON.
[[nodiscard]] std::optional<std::int64_t> parse_size_with_unit(std::string_view text);

/// A whole number, such as a number of tokens: "512", "16K". K, M, G and T are powers of 1024, as
/// in a size. None when the text is no such number, or is above 2^62.
[[nodiscard]] std::optional<std::int64_t> parse_count(std::string_view text);

/// With one decimal, in the largest unit (a power of 1024) that does not exceed it: "1.5 MiB".
[[nodiscard]] std::string size_text(std::int64_t bytes);

/// With three digits, in the largest unit (a power of 1000) that does not exceed it: "420 MB",
/// "27.4 MB", "1.00 GB"; of less than 1 kB the whole number.
[[nodiscard]] std::string decimal_size_text(double bytes);

/// The shortest text with a whole number that parse_size() reads back: "512", "24K", "1M".
[[nodiscard]] std::string short_size_text(std::uint64_t bytes);

}  // namespace kvreplay
