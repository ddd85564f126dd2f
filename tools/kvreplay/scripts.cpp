#include <CLI/CLI.hpp>

#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/python_tool.hpp"

namespace kvreplay {
namespace {

/// A command whose options and help are those of a script.
void add_script(CLI::App& program, const char* name, const char* help, const char* script) {
  CLI::App* command = program.add_subcommand(name, help);
  command->set_help_flag();
  command->prefix_command();
  command->callback([command, script] { become_python_tool(script, command->remaining()); });
}

}  // namespace

void add_reproduce(CLI::App& program) {
  add_script(program, "reproduce",
             "Compare what five papers report with what their experiments give here", "reproduce");
}

void add_report(CLI::App& program) {
  add_script(program, "report",
             "One HTML page of a folder of results: tables, figures, configuration, timeline",
             "report");
}

}  // namespace kvreplay
