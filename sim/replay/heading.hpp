#pragma once

#include <string>
#include <string_view>

namespace kvreplay {

/// Words for a column of results, as a table of a paper has them: "Hidden I/O (ms)" of
/// `hidden_io_ms`. Of a swept key the last part counts. Without a unit where the column counts
/// bytes, as its cells have one.
[[nodiscard]] std::string heading(std::string_view name);

/// A word of the name is "bytes": dram_kv_bytes, read_bytes_per_step.
[[nodiscard]] bool counts_bytes(std::string_view name);

}  // namespace kvreplay
