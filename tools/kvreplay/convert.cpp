#include "traces/operations/convert.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {

void add_convert(CLI::App& program) {
  struct Options {
    std::string trace;
    std::string out;
    ConvertOptions convert;
    bool archive = false;
  };
  CLI::App* command = program.add_subcommand(
      "convert", "Write a trace anew: other dtype, before or after RoPE, archived or mapped");
  auto options = std::make_shared<Options>();
  add_trace_argument(*command, "TRACE", options->trace);
  add_new_trace_argument(*command, options->out);
  command->add_option("--dtype", options->convert.dtype, "How vectors are stored (default: as is)")
      ->check(one_of({"f16", "bf16"}))
      ->type_name("f16|bf16");
  command
      ->add_option("--key-state", options->convert.key_state,
                   "Keys and queries with the rotary embedding, or without (default: as is)")
      ->check(one_of({"post_rope", "pre_rope"}))
      ->type_name("post_rope|pre_rope");
  command->add_flag("--archive", options->archive,
                    "Chunks with shuffle and gzip: smaller, read into memory "
                    "(default: contiguous, memory-mapped)");
  command->footer(
      "Examples:\n"
      "  kvreplay convert in.kvtrace.h5 out.kvtrace.h5 --key-state post_rope\n"
      "  kvreplay convert in.kvtrace.h5 small.kvtrace.h5 --archive");
  command->callback([options] {
    if (options->archive) options->convert.storage = TraceWriter::Storage::kArchive;
    convert_trace(TraceReader(options->trace), options->convert, options->out);
    std::cerr << "kvreplay: wrote " << options->out << '\n';
  });
}

}  // namespace kvreplay
