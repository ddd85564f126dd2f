#include "sim/models/record.hpp"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/output_file.hpp"
#include "base/parallel.hpp"
#include "base/utc_time.hpp"
#include "policies/adapters/adapt.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/count_range.hpp"
#include "tools/kvreplay/model_files.hpp"
#include "tools/kvreplay/option_values.hpp"
#include "tools/kvreplay/text_options.hpp"

namespace kvreplay {
namespace {

struct RecordCommand {
  std::string model;
  TextOptions text;
  TextOptions adapt;
  std::string chat;
  std::optional<std::int64_t> adapt_tokens;
  bool adapt_spread = false;
  std::string layers = "all";
  std::string out;
  std::optional<std::int64_t> prompt;
  std::optional<std::int64_t> steps;
  bool generate = false;
  SamplingOptions sampling{.temperature = 0};
  RecordOptions record;
};

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

/// The matrices for the layers that `options` records, made of another text: it is read first, and
/// its recording is not kept.
std::vector<std::map<std::string, Adapter>> adapters_of(const RecordCommand& command,
                                                        const Model& model,
                                                        const RecordOptions& options) {
  ModelText text = load_text(command.adapt, model);
  if (text.sha256 == options.text_sha256) {
    std::cerr
        << "kvreplay: warning: the adapters' text is the text itself; what the matrices predict "
           "looks better than it would on another text\n";
  }
  const std::int64_t tokens = std::min({command.adapt_tokens.value_or(4096), std::ssize(text.ids),
                                        model.architecture().context_tokens});
  if (tokens < 2) {
    throw UserError({text.source, ""}, "a text of " + std::to_string(text.ids.size()) + " tokens",
                    "2 tokens or more");
  }
  std::cerr << few_tokens_warning(tokens, model.architecture().kv_size());
  RecordOptions other = options;
  other.ids = std::move(text.ids);
  other.text_source = std::move(text.source);
  other.text_sha256 = std::move(text.sha256);
  other.sampling = std::nullopt;
  other.segments.clear();
  other.drawn = std::nullopt;
  other.prompt_tokens = tokens - 1;
  other.steps = 1;
  other.query_window = other.prompt_tokens;
  other.queries_ahead = false;
  other.attention_input = false;
  std::cerr << "kvreplay: adapters: " << tokens << " tokens of " << other.text_source << '\n';
  const OutputFile scratch(command.out + ".adapters");  // never committed
  record_trace(model, other, scratch.temporary_path());
  const TraceReader trace(scratch.temporary_path());
  const std::int64_t positions =
      command.adapt_spread ? options.prompt_tokens + options.steps : std::int64_t{0};
  std::vector<std::map<std::string, Adapter>> adapters;
  for (std::int64_t i = 0; i < std::ssize(trace.info().recorded_layers); ++i) {
    adapters.push_back(make_adapters(trace, i, {.positions = positions}));
  }
  return adapters;
}

/// A conversation with all its answers: the model writes its own first, and the recording follows
/// them as one text. The options receive its segments.
ModelText load_conversation(const RecordCommand& command, const Model& model,
                            RecordOptions& options) {
  const Chat chat = load_chat(command.chat, model);
  const std::int64_t most = command.steps.value_or(options.steps);
  ChatText written =
      write_chat(model, chat, most, command.sampling, options.threads, options.chunk_tokens);
  options.segments = std::move(written.segments);
  const auto answer = std::find_if(options.segments.begin(), options.segments.end(),
                                   [](const Segment& segment) { return segment.generated; });
  if (chat.draws()) options.drawn = command.sampling;
  options.sampling = std::nullopt;
  const std::int64_t tokens = std::ssize(written.ids);
  return {std::move(written.ids), std::filesystem::path(command.chat).filename().string(),
          sha256_file(command.chat), answer->begin, tokens - answer->begin};
}

void record(const RecordCommand& command) {
  check_is_new(command.out);
  const bool adapts = !command.adapt.text.empty() || !command.adapt.token_ids.empty();
  if (!adapts && (command.adapt_tokens || command.adapt_spread)) {
    throw UserError({command.adapt_spread ? "--adapt-spread" : "--adapt-tokens", ""},
                    "given without another text", "with --adapt-text or --adapt-token-ids");
  }
  OutputFile claim(command.out);  // first, so that no recording is lost for lack of a place
  claim.claim();
  const Model model(find_model(command.model));
  RecordOptions options = command.record;
  if (options.threads == 0) options.threads = processor_count();
  if (command.generate) options.sampling = command.sampling;
  ModelText text;
  if (command.chat.empty()) {
    text = load_text(command.text, model);
  } else {
    text = load_conversation(command, model, options);
  }
  options.ids = std::move(text.ids);
  options.text_source = std::move(text.source);
  options.text_sha256 = std::move(text.sha256);
  options.prompt_tokens =
      command.prompt.value_or(text.prompt_tokens.value_or(options.prompt_tokens));
  options.steps = command.chat.empty() ? command.steps.value_or(text.steps.value_or(options.steps))
                                       : *text.steps;
  options.layers = parse_layers(command.layers);
  options.created_utc = utc_now();
  options.query_window = std::min(options.query_window, options.prompt_tokens);
  if (adapts) {
    // A mistake about the text itself comes before work on the other.
    const std::int64_t steps = options.sampling ? 0 : options.steps;
    check_text(model, options.ids, options.prompt_tokens, options.steps,
               options.prompt_tokens + steps);
    options.adapters = adapters_of(command, model, options);
  }
  report(options, record_trace(model, options, command.out));
  std::cerr << "kvreplay: wrote " << command.out << '\n';
}

}  // namespace

void add_record(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "record", "Run a model on a text and record its keys, values and queries as a trace");
  auto options = std::make_shared<RecordCommand>();
  RecordOptions& record_options = options->record;
  add_model_option(*command, options->model);
  CLI::Option* chat =
      add_text_options(*command, options->text)
          ->add_option(
              "--chat", options->chat,
              "A conversation, one {\"role\": ..., \"content\": ...} per line; the roles are "
              "system, user and assistant, and the model writes an assistant's turn that "
              "has no content")
          ->type_name("FILE");
  command->add_option("--out", options->out, "The trace to write; missing folders are made")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--prompt", options->prompt,
                   "Prompt tokens, which are prefilled (default: the trace's own, or 2048)")
      ->excludes(chat)
      ->transform(in_count_range(1, std::int64_t{1} << 30))
      ->type_name("N");
  command
      ->add_option(
          "--steps", options->steps,
          "Decode steps (default: the trace's own, or 512); with --chat, the most tokens of a turn "
          "that the model writes")
      ->transform(in_count_range(1, std::int64_t{1} << 30))
      ->type_name("N");
  CLI::Option* adapt_text =
      command
          ->add_option("--adapt-text", options->adapt.text,
                       "Another text: low-rank, PCA and skew matrices are made from it and stored "
                       "with the trace, as by `kvreplay adapt`; the predictors of KVSwap and Loki "
                       "need them")
          ->type_name("FILE");
  command
      ->add_option("--adapt-token-ids", options->adapt.token_ids,
                   "The same, from token ids separated by white space")
      ->excludes(adapt_text)
      ->type_name("FILE");
  command
      ->add_option("--adapt-tokens", options->adapt_tokens,
                   "First tokens of that text that are read (default: 4096)")
      ->transform(in_count_range(2, std::int64_t{1} << 30))
      ->type_name("N");
  command->add_flag("--adapt-spread", options->adapt_spread,
                    "Turn that text's keys and queries to positions spread evenly over the "
                    "recording's length, as if the text were as long");
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
  add_sampling_options(*command, options->generate, options->sampling);
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
      "      --adapt-text LICENSE --out readme.kvtrace.h5");
  command->callback([options] { record(*options); });
}

}  // namespace kvreplay
