#include "traces/operations/diff.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"

namespace kvreplay {

void add_diff(CLI::App& program, int& exit_code) {
  struct Options {
    std::string first;
    std::string second;
  };
  CLI::App* command = program.add_subcommand(
      "diff", "Compare two traces: attributes, shapes, values; exit code 0 = same, 1 = different");
  auto options = std::make_shared<Options>();
  add_trace_argument(*command, "A", options->first);
  add_trace_argument(*command, "B", options->second, "The other one");
  command->footer(
      "Prints the largest absolute difference of each data set, and its norm relative to A's.\n"
      "Example:\n  kvreplay diff story.kvtrace.h5 story-bf16.kvtrace.h5");
  command->callback([options, &exit_code] {
    const TraceDifference difference =
        diff_traces(TraceReader(options->first), TraceReader(options->second));
    std::cout << to_text(difference);
    exit_code = difference.same() ? 0 : 1;
  });
}

}  // namespace kvreplay
