#pragma once

#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "sim/replay/experiment_request.hpp"

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
/// --configs: the standard folder unless it is given.
void add_configs_option(CLI::App& command, ConfigFolder& configs);

/// What every command that replays an experiment takes.
struct ExperimentOptions {
  std::string name{};               ///< a file, or a name of `list experiments`
  std::vector<std::string> sets{};  ///< --set
  int threads = 0;                  ///< 0 = as the experiment says
  ConfigFolder configs = ConfigFolder::standard();

  [[nodiscard]] ExperimentRequest request() const;
};

/// --threads, or --jobs: 0, the default, is as many as the machine has. `what` does not depend on
/// it.
void add_threads_option(CLI::App& command, int& threads, const std::string& what);

}  // namespace kvreplay
