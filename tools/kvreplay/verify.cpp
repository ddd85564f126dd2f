#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

void add_verify(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("verify", "Check every value of a trace instead of a sample");
  auto file = std::make_shared<std::string>();
  add_trace_argument(*command, "TRACE", *file);
  command->callback([file] {
    const TraceReader trace(*file);
    trace.verify();
    std::cout << *file << ": complete and sound; sha256 " << trace.content_hash() << '\n';
  });
}

}  // namespace kvreplay
