#include "policies/adapters/adapt.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {

void add_adapt(CLI::App& program) {
  struct Options {
    std::string from;
    std::string to;
    std::string out;
    AdaptOptions adapt;
    bool spread = false;
  };
  CLI::App* command = program.add_subcommand(
      "adapt", "Make low-rank, PCA and skew matrices from one text and store them with another");
  auto options = std::make_shared<Options>();
  add_trace_argument(*command, "FROM", options->from,
                     "A .kvtrace.h5 file of the same model on another text, with all layers of TO");
  add_trace_argument(*command, "TO", options->to, "The .kvtrace.h5 file to be replayed");
  add_new_trace_argument(*command, options->out, "The trace to write: TO with the matrices");
  command
      ->add_option("--rank", options->adapt.rank,
                   "Columns of joint_lowrank (default: 128, or all of kv_heads * head_dim)")
      ->check(number_range())
      ->type_name("N");
  command->add_flag("--spread", options->spread,
                    "Turn FROM's keys and queries to positions spread evenly over TO's length, as "
                    "if its text were as long; needs a RoPE that is not scaled");
  command->footer(
      "Example:\n  kvreplay adapt letters.kvtrace.h5 story.kvtrace.h5 adapted.kvtrace.h5");
  command->callback([options] {
    const TraceReader to(options->to);
    if (options->spread) options->adapt.positions = to.info().tokens;
    const TraceReader from(options->from);
    const TraceInfo& source = from.info();
    std::cerr << few_tokens_warning(source.tokens, source.kv_heads * source.head_dim);
    adapt_trace(from, to, options->adapt, options->out);
    if (!adapters_of_own_text(TraceReader(options->out)).empty()) {
      std::cerr << "kvreplay: warning: both traces are of the same text; what the matrices predict "
                   "looks better than on another text\n";
    }
    std::cerr << "kvreplay: wrote " << options->out << '\n';
  });
}

}  // namespace kvreplay
