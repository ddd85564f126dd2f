#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "tools/kvreplay/commands.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

void add_verify(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("verify", "Check every value of a trace, not only a sample");
  auto file = std::make_shared<std::string>();
  command->add_option("TRACE", *file, "A .kvtrace.h5 file")->required()->type_name("");
  command->callback([file] {
    const TraceReader trace(*file);
    trace.verify();
    std::cout << *file << ": complete and sound; sha256 " << trace.content_hash() << '\n';
  });
}

}  // namespace kvreplay
