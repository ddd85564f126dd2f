#pragma once

#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "sim/replay/experiment_request.hpp"
#include "sim/replay/results.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kvreplay {

// Options that several commands have.

/// The option takes traces: files, or names of shipped ones.
CLI::Option* takes_traces(CLI::Option* option);
/// A positional argument that names a trace to read; `name`: such as TRACE.
void add_trace_argument(CLI::App& command, const std::string& name, std::string& file,
                        const std::string& help = "A .kvtrace.h5 file, or a name of `list traces`");
/// OUT: a trace to write, which must not exist.
void add_new_trace_argument(CLI::App& command, std::string& file,
                            const std::string& help = "The trace to write");
/// --configs, with the standard folder as default.
void add_configs_option(CLI::App& command, ConfigFolder& configs);

/// The arguments of every command that replays an experiment.
struct ExperimentOptions {
  std::string name{};               ///< a file, or a name of `list experiments`
  std::vector<std::string> sets{};  ///< --set
  int threads = 0;                  ///< 0 = the experiment's number
  ConfigFolder configs = ConfigFolder::standard();

  [[nodiscard]] ExperimentRequest request() const;
};

/// --format, --columns, --sort and --width, for a table of results.
void add_view_options(CLI::App& command, TableView& view);

/// --threads or --jobs, by default 0: one per hardware thread. `what` names the results that do not
/// depend on it, with its verb.
void add_threads_option(CLI::App& command, int& threads, const std::string& what);

}  // namespace kvreplay
