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

void add_compare(CLI::App& program) {
  add_script(program, "compare",
             "Set two folders of results side by side: runs, sweeps, live runs, device replays",
             "compare");
}

void add_validate(CLI::App& program) {
  add_script(program, "validate",
             "Set simulated tokens beside real ones on this machine: probe, fit, run live, compare",
             "validate");
}

void add_plot(CLI::App& program) {
  add_script(program, "plot",
             "Draw the figures of what kvreplay wrote: runs, sweeps, closed loops, devices, traces",
             "plot");
}

void add_report(CLI::App& program) {
  add_script(program, "report",
             "One HTML page of a folder of results: tables, figures, configuration, timeline",
             "report");
}

}  // namespace kvreplay
