#include "sim/models/record.hpp"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/model_files.hpp"
#include "tools/kvreplay/option_values.hpp"
#include "tools/kvreplay/text_options.hpp"

namespace kvreplay {
namespace {

struct RecordCommand {
  std::string model;
  TextOptions text;
  std::string layers = "all";
  std::string out;
  std::optional<std::int64_t> prompt;
  std::optional<std::int64_t> steps;
  bool generate = false;
  SamplingOptions sampling{.temperature = 0};
  RecordOptions record;
};

/// The time of SOURCE_DATE_EPOCH, which makes builds reproducible, or else the current time.
std::string utc_now() {
  std::time_t now = std::time(nullptr);
  if (const char* epoch = std::getenv("SOURCE_DATE_EPOCH"); epoch != nullptr) {
    now = static_cast<std::time_t>(std::strtoll(epoch, nullptr, 10));
  }
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::vector<std::int64_t> parse_layers(const std::string& text) {
  std::vector<std::int64_t> layers;
  if (text == "all") return layers;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) {
    char* end = nullptr;
    layers.push_back(std::strtoll(item.c_str(), &end, 10));
    if (item.empty() || *end != '\0') {
      throw UserError({"record", "--layers"}, text, "all, or layer numbers such as 4,8,12");
    }
  }
  return layers;
}

void report(const RecordOptions& options, const RecordResult& result) {
  const auto rate = [](const char* what, std::int64_t tokens, double seconds, double flops) {
    std::fprintf(stderr, "kvreplay: %s: %lld tokens in %.1f s, %.1f tokens/s, %.1f GFLOP/s\n", what,
                 static_cast<long long>(tokens), seconds, static_cast<double>(tokens) / seconds,
                 flops / seconds * 1e-9);
  };
  rate("prompt", options.prompt_tokens, result.prompt_s, result.prompt_flops);
  rate(options.sampling ? "decode" : "steps, as one text", options.steps, result.steps_s,
       result.steps_flops);
  std::printf("perplexity         %.4f\n", result.perplexity);
  if (std::isfinite(result.decode_perplexity)) {
    std::printf("decode perplexity  %.4f\n", result.decode_perplexity);
  }
}

void record(const RecordCommand& command) {
  if (std::filesystem::exists(command.out)) {
    throw UserError({command.out, ""}, "it exists", "a new file");
  }
  const Model model(find_model(command.model));
  RecordOptions options = command.record;
  ModelText text = load_text(command.text, model);
  options.ids = std::move(text.ids);
  options.text_source = std::move(text.source);
  options.text_sha256 = std::move(text.sha256);
  options.prompt_tokens =
      command.prompt.value_or(text.prompt_tokens.value_or(options.prompt_tokens));
  options.steps = command.steps.value_or(text.steps.value_or(options.steps));
  options.layers = parse_layers(command.layers);
  options.created_utc = utc_now();
  if (command.generate) options.sampling = command.sampling;
  if (options.threads == 0) options.threads = processor_count();
  options.query_window = std::min(options.query_window, options.prompt_tokens);
  report(options, record_trace(model, options, command.out));
  std::cerr << "kvreplay: wrote " << command.out << '\n';
}

}  // namespace

void add_record(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "record", "Run a model on a text and record its keys, values and queries as a trace");
  auto options = std::make_shared<RecordCommand>();
  RecordOptions& record_options = options->record;
  command
      ->add_option("--model", options->model,
                   "A model of fetch-model by name, or a file of tools/scripts/import_model.py")
      ->required()
      ->type_name("NAME|FILE");
  add_text_options(*command, options->text);
  command->add_option("--out", options->out, "The trace to write")->required()->type_name("FILE");
  command
      ->add_option("--prompt", options->prompt,
                   "Prompt tokens, which are prefilled (default: the trace's own, or 2048)")
      ->check(in_range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("N");
  command->add_option("--steps", options->steps, "Decode steps (default: the trace's own, or 512)")
      ->check(in_range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("N");
  command
      ->add_option("--layers", options->layers, "Layers to record: all, or numbers (default: all)")
      ->type_name("N,N");
  command
      ->add_option("--query-window", record_options.query_window,
                   "Last prompt positions whose queries are recorded")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("!--no-query-ahead", record_options.queries_ahead,
                    "Leave out the look-ahead queries");
  command->add_flag("--attention-input", record_options.attention_input,
                    "Also record the input of each layer's projections");
  command->add_flag("--generate", options->generate,
                    "The model writes the steps' tokens itself, instead of following the text");
  command
      ->add_option("--temperature", options->sampling.temperature,
                   "Temperature of generation; 0 = always the most likely token")
      ->check(in_range(0.0, 100.0))
      ->needs("--generate")
      ->type_name("X")
      ->capture_default_str();
  command
      ->add_option("--top-p", options->sampling.top_p,
                   "Draw from the most likely tokens that together reach this probability")
      ->check(in_range(0.0, 1.0))
      ->needs("--generate")
      ->type_name("X")
      ->capture_default_str();
  command->add_option("--seed", options->sampling.seed, "Seed of the draws")
      ->check(seed_range())
      ->needs("--generate")
      ->type_name("N")
      ->capture_default_str();
  add_threads_option(*command, record_options.threads, "the trace does");
  command->footer(
      "Example:\n"
      "  kvreplay fetch-model smollm2-135m\n"
      "  kvreplay record --model smollm2-135m --text README.md --prompt 1024 --steps 128 \\\n"
      "      --out readme.kvtrace.h5");
  command->callback([options] { record(*options); });
}

}  // namespace kvreplay
