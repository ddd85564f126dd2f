#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"

namespace kvreplay {

/// A trace that ships in traces/data. Its short name is the first word of the file's name (words
/// end at hyphens) that no other file shares.
struct ShippedTrace {
  std::string name;
  std::string file;
};

/// Sorted by file name.
[[nodiscard]] std::vector<ShippedTrace> shipped_traces();

/// The file of a trace that is given by its short name or file name. Anything with a slash or a
/// dot, or that is a file, is a path and is used as it is. Throws a UserError at `place` with the
/// nearest name when there is none.
[[nodiscard]] std::string find_trace(const std::string& name_or_file, const SourceLocation& place);

}  // namespace kvreplay
