#include "tools/kvreplay/common_options.hpp"

#include <CLI/CLI.hpp>

#include "tools/kvreplay/option_values.hpp"
#include "traces/shipped.hpp"

namespace kvreplay {

CLI::Option* takes_traces(CLI::Option* option) {
  return option->transform([name = option->get_name()](const std::string& given) {
    return find_trace(given, {name, ""});
  });
}

void add_trace_argument(CLI::App& command, const std::string& name, std::string& file,
                        const std::string& help) {
  takes_traces(command.add_option(name, file, help))->required()->type_name("");
}

void add_new_trace_argument(CLI::App& command, std::string& file, const std::string& help) {
  command.add_option("OUT", file, help)->required()->check(CLI::NonexistentPath)->type_name("");
}

void add_configs_option(CLI::App& command, ConfigFolder& configs) {
  command
      .add_option_function<std::string>(
          "--configs", [&configs](const std::string& folder) { configs = ConfigFolder(folder); },
          "Folder in which names are looked up")
      ->type_name("DIR");
}

ExperimentRequest ExperimentOptions::request() const {
  ExperimentRequest request{name, sets, configs};
  if (threads > 0) request.sets.push_back("threads=" + std::to_string(threads));
  return request;
}

void add_view_options(CLI::App& command, TableView& view) {
  command.add_option("--format", view.format, "What to print")
      ->check(one_of(table_formats()))
      ->type_name(join(table_formats(), "|"))
      ->capture_default_str();
  as_list(
      command.add_option("--columns", view.columns,
                         "Columns to print, of `list metrics`: names, dram_* for all that begin "
                         "so, +NAME to add one to the usual ones, all for every one"))
      ->type_name("NAME,...");
  as_list(
      command.add_option("--sort", view.sort,
                         "Order of the printed rows: by KEY, from the lowest; KEY:desc from the "
                         "highest; the next key where equal"))
      ->type_name("KEY,...");
  command
      .add_option("--width", view.width,
                  "Characters per line of a table; what has no room is named below it; 0 = any")
      ->check(in_range(std::size_t{0}, std::size_t{1} << 20))
      ->type_name("N")
      ->capture_default_str();
}

void add_threads_option(CLI::App& command, int& threads, const std::string& what) {
  threads = 0;
  command
      .add_option(
          "--threads,--jobs", threads,
          "Worker threads; 0 = one per hardware thread; " + what + " not depend on it (default: 0)")
      ->check(in_range(0, 1024))
      ->type_name("N");
}

}  // namespace kvreplay
