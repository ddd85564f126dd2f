#pragma once

#include <span>
#include <string>
#include <vector>

namespace kvreplay {

/// The words of a command that runs the module kvreplay.`name` of tools/python by the Python of
/// $KVREPLAY_PYTHON, else by the first python3 on PATH. That one hands over to a later one on PATH
/// where it lacks the packages and the later one has them (kvreplay.interpreter).
[[nodiscard]] std::vector<std::string> python_tool_words(const std::string& name,
                                                         std::span<const std::string> arguments);

/// Runs the module; its output is the program's own. Throws UserError when it cannot be run or
/// fails, after its own message.
void run_python_tool(const std::string& name, std::span<const std::string> arguments);

/// The module replaces this process, and its exit code is the program's own. It finds the program's
/// path in the variable KVREPLAY_PROGRAM. Throws UserError when it cannot be run.
[[noreturn]] void become_python_tool(const std::string& name,
                                     std::span<const std::string> arguments);

}  // namespace kvreplay
