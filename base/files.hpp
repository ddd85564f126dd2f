#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvreplay {

/// UserError when `file` is there but is not a regular file: a folder, a device, or a pipe, which
/// could be waited for without end. A missing one is for the opening to tell.
void check_regular_file(const std::string& file);

/// The bytes of a regular file. UserError when there are none to read; `allowed` says what it must
/// be.
[[nodiscard]] std::string read_text_file(const std::string& file, std::string_view allowed);

/// UserError when writing `out` would replace `input`, which the same command reads, whatever the
/// names by which the two are called.
void check_not_input(const std::string& out, const std::string& input);

/// UserError when a new file of `bytes` at `path` exceeds the free space of its file system.
void check_free_space(const std::string& path, std::uint64_t bytes);

}  // namespace kvreplay
