#pragma once

#include <string>

namespace kvreplay {

class StageStore;

/// SHA-256 of a trace file's bytes. The store keeps it as long as the file's path, size, times and
/// inode stay the same.
[[nodiscard]] std::string trace_hash(const std::string& file, StageStore& store);

}  // namespace kvreplay
