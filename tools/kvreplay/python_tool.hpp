#pragma once

#include <span>
#include <string>

namespace kvreplay {

/// Runs the module kvreplay.`name` of tools/python with Debian's Python; its output is the
/// program's own. Throws UserError when it cannot be run or fails, after its own message.
void run_python_tool(const std::string& name, std::span<const std::string> arguments);

/// The module replaces this process, and its exit code is the program's own. It finds the program's
/// path in the variable KVREPLAY_PROGRAM. Throws UserError when it cannot be run.
[[noreturn]] void become_python_tool(const std::string& name,
                                     std::span<const std::string> arguments);

}  // namespace kvreplay
