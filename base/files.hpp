#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvreplay {

/// Throws UserError when `file` exists but is not a regular file: a folder, a device, or a pipe,
/// which could block without end. A missing file is reported when it is opened.
void check_regular_file(const std::string& file);

/// The bytes of a regular file. Throws UserError when it cannot be read; `allowed` describes what
/// it must be.
[[nodiscard]] std::string read_text_file(const std::string& file, std::string_view allowed);

/// Throws UserError when writing `out` would replace `input`, which the same command reads, even if
/// the two have different names.
void check_not_input(const std::string& out, const std::string& input);

/// Throws UserError when there is something at `out`, which would be replaced.
void check_is_new(const std::string& out);

/// Throws UserError when a new file of `bytes` at `path` would exceed the free space of its file
/// system.
void check_free_space(const std::string& path, std::uint64_t bytes);

}  // namespace kvreplay
