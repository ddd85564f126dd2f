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
/// One space may stand before the unit. A fraction must make a whole number of bytes. Nothing when
/// the text is no such size, or more than 2^62 bytes.
[[nodiscard]] std::optional<std::int64_t> parse_size(std::string_view text);

/// The same of texts with a unit alone: where a plain number has a type of its own, as in JSON.
[[nodiscard]] std::optional<std::int64_t> parse_size_with_unit(std::string_view text);

/// A whole number, of tokens for example: "512", "16K". K, M, G and T are powers of 1024, as in a
/// size. Nothing when the text is no such number, or more than 2^62.
[[nodiscard]] std::optional<std::int64_t> parse_count(std::string_view text);

/// With one decimal, in the largest unit of 1024 that it fills: "1.5 MiB".
[[nodiscard]] std::string size_text(std::int64_t bytes);

/// The shortest whole number that parse_size() reads back: "512", "24K", "1M".
[[nodiscard]] std::string short_size_text(std::uint64_t bytes);

}  // namespace kvreplay
