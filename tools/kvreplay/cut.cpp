#include "traces/operations/cut.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/count_range.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {

void add_cut(CLI::App& program) {
  struct Options {
    std::string trace;
    std::string out;
    CutOptions cut;
  };
  CLI::App* command =
      program.add_subcommand("cut", "Write a smaller trace, with fewer layers or tokens");
  auto options = std::make_shared<Options>();
  add_trace_argument(*command, "TRACE", options->trace);
  add_new_trace_argument(*command, options->out);
  command->add_option("--layers", options->cut.layers, "The model's layer numbers (default: all)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number_range())
      ->type_name("N,N");
  command->add_option("--start", options->cut.window_start, "First token to keep (default: 0)")
      ->check(number_range())
      ->type_name("N");
  command->add_option("--prompt", options->cut.prompt_tokens, "Prompt tokens (default: all)")
      ->transform(in_count_range(0, std::int64_t{1} << 31))
      ->type_name("N");
  command->add_option("--decode", options->cut.decode_tokens, "Decode steps (default: all)")
      ->transform(in_count_range(0, std::int64_t{1} << 31))
      ->type_name("N");
  command->footer(
      "Example:\n"
      "  kvreplay cut story.kvtrace.h5 small.kvtrace.h5 --layers 12,24 --prompt 3072 --decode 64");
  command->callback([options] {
    cut_trace(TraceReader(options->trace), options->cut, options->out);
    std::cerr << "kvreplay: wrote " << options->out << '\n';
  });
}

}  // namespace kvreplay
