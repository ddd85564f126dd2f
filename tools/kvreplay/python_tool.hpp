#pragma once

#include <span>
#include <string>

namespace kvreplay {

/// Runs tools/`name` of the source tree with Debian's Python; its output is the program's own.
/// UserError when it cannot be run or fails, after what it said itself.
void run_python_tool(const std::string& name, std::span<const std::string> arguments);

}  // namespace kvreplay
