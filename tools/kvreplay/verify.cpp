#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

void add_verify(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "verify", "Check every value, object and checksum of a trace, not only a sample");
  auto file = std::make_shared<std::string>();
  add_trace_argument(*command, "TRACE", *file);
  command->callback([file] {
    const TraceReader trace(*file);
    trace.verify();
    std::cout << *file << ": complete and sound"
              << (trace.has_checksums() ? "" : ", as far as a file without checksums shows")
              << "; sha256 " << trace.content_hash() << '\n';
  });
}

}  // namespace kvreplay
