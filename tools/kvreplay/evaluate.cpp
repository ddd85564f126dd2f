#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/parallel.hpp"
#include "base/result_folder.hpp"
#include "sim/evaluation/evaluation.hpp"
#include "sim/evaluation/own_trace.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/count_range.hpp"
#include "tools/kvreplay/model_files.hpp"
#include "tools/kvreplay/option_values.hpp"
#include "tools/kvreplay/text_options.hpp"

namespace kvreplay {
namespace {

struct EvaluateOptions {
  std::string model;
  TextOptions text;
  EvaluationRequest request{.threads = 0};
  std::string out;
};

void evaluate(const EvaluateOptions& options) {
  const Model model(find_model(options.model));
  EvaluationRequest request = options.request;
  if (request.threads == 0) request.threads = processor_count();
  const std::vector<EvaluationCell> cells = make_cells(request);
  const ModelText text = load_text(options.text, model);
  const std::string name = request.needle ? "needle" : "closed-loop";
  ResultFolder folder = options.out.empty() ? ResultFolder::numbered("results/" + name)
                                            : ResultFolder::at(options.out);
  if (!request.adapter_trace.empty() && is_trace_of(request.adapter_trace, text)) {
    std::cerr
        << "kvreplay: warning: the adapter trace was made from the very text that is evaluated\n";
  }
  const std::string meanwhile = folder.temporary_path();
  const EvaluationResult result =
      request.needle
          ? evaluate_needles(request, model, text, cells, meanwhile,
                             [&](const std::string& piece) { return tokenise(model, piece); })
          : evaluate_text(request, model, text, cells, meanwhile);
  folder.write_all(result.files);
  std::cout << result.table;
  folder.write({"manifest.json", evaluation_manifest(request, model, text, cells)});
  std::cerr << "kvreplay: results in " << folder.commit() << '\n';
}

}  // namespace

void add_evaluate(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "evaluate", "Run a model with each system inside its attention: perplexity, KL, needles");
  auto options = std::make_shared<EvaluateOptions>();
  EvaluationRequest& request = options->request;
  const auto list = [](CLI::Option* option, const char* type) {
    return option->delimiter(',')->allow_extra_args(false)->type_name(type);
  };
  add_model_option(*command, options->model);
  add_text_options(*command, options->text);
  list(command->add_option("--systems", request.systems, "Names of `list systems`, or files"),
       "NAME,NAME")
      ->required();
  list(command
           ->add_option("--budgets", request.budgets,
                        "Token budgets, for systems that have one (default: each system's own)")
           ->check(in_range(std::int64_t{1}, std::int64_t{1} << 30)),
       "N,N");
  list(command
           ->add_option("--bits", request.bits,
                        "Bits per stored element, for systems whose budget is in bits (default: "
                        "each system's own)")
           ->check(in_range(1, 16)),
       "N,N");
  command
      ->add_option("--set", request.sets,
                   "One row per value of a parameter, in place of the system's budget; its unit "
                   "is then the parameter's name")
      ->allow_extra_args(false)
      ->type_name("SYSTEM.PART.PARAMETER=VALUE,VALUE");
  command->add_option("--prompt", request.prompt, "Prompt tokens, read under full attention")
      ->transform(in_count_range(1, std::int64_t{1} << 30))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--steps", request.steps, "Decode steps under each system")
      ->transform(in_count_range(2, std::int64_t{1} << 30))
      ->type_name("N")
      ->capture_default_str();
  takes_traces(
      command->add_option("--adapter-trace", request.adapter_trace,
                          "A recording of another text by the same model, all layers: low-rank and "
                          "PCA matrices are computed from it"))
      ->type_name("TRACE");
  command->add_flag("--needle", request.needle,
                    "Plant a sentence in the text and ask for it, instead of following the text");
  list(command->add_option("--lengths", request.lengths, "Tokens of the haystacks")
           ->needs("--needle")
           ->check(in_range(std::int64_t{64}, std::int64_t{1} << 30))
           ->capture_default_str(),
       "N,N");
  list(command->add_option("--depths", request.depths, "Positions of the needle: 0 first, 1 last")
           ->needs("--needle")
           ->check(in_range(0.0, 1.0))
           ->capture_default_str(),
       "X,X");
  command->add_option("--seed", request.seed, "Seed of the systems and of the needles")
      ->check(seed_range())
      ->type_name("N")
      ->capture_default_str();
  add_threads_option(*command, request.threads, "results do");
  command
      ->add_option("--out", options->out,
                   "New folder for the results (default: results/closed-loop or results/needle, "
                   "numbered when taken)")
      ->type_name("DIR");
  command->footer(
      "Examples:\n"
      "  kvreplay record --model smollm2-135m --text letters.txt --out letters.kvtrace.h5\n"
      "  kvreplay evaluate --model smollm2-135m --text story.txt --systems kvswap,quest,kivi_4 \\\n"
      "      --budgets 128,256,512 --bits 2,4 --adapter-trace letters.kvtrace.h5\n"
      "  kvreplay evaluate --model smollm2-135m --text story.txt --systems quest,clusterkv \\\n"
      "      --budgets 256 --needle --lengths 1024,2048 --depths 0,0.5,1");
  command->callback([options] { evaluate(*options); });
}

}  // namespace kvreplay
