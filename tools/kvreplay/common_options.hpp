#pragma once

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kvreplay {

// Options that several commands have.

/// The option's traces are files, or names of those that ship.
CLI::Option* takes_traces(CLI::Option* option);
/// `name`, such as TRACE: a trace to read, a positional argument.
void add_trace_argument(CLI::App& command, const std::string& name, std::string& file,
                        const std::string& help = "A .kvtrace.h5 file, or a name of `list traces`");
/// OUT: a trace to write, which must not exist.
void add_new_trace_argument(CLI::App& command, std::string& file,
                            const std::string& help = "The trace to write");
/// --threads, or --jobs: 0, the default, is as many as the machine has. `what` does not depend on
/// it.
void add_threads_option(CLI::App& command, int& threads, const std::string& what);

}  // namespace kvreplay
