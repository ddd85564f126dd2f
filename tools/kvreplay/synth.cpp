#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/output_file.hpp"
#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "base/shell.hpp"
#include "base/size.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/count_range.hpp"
#include "tools/kvreplay/option_values.hpp"
#include "traces/shipped.hpp"
#include "traces/synthesis/synthesise.hpp"

namespace kvreplay {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kReportEnding = ".synthetic.kvtrace.h5";

Json report_json(const HeadStatistics& statistics) {
  return {{"entropy_nats", statistics.entropy_nats},    {"top_16_mass", statistics.top_16_mass},
          {"top_64_mass", statistics.top_64_mass},      {"top_256_mass", statistics.top_256_mass},
          {"first_16_mass", statistics.first_16_mass},  {"last_64_mass", statistics.last_64_mass},
          {"top_64_overlap", statistics.top_64_overlap}};
}

Json report_json(const SynthesisReport& report) {
  Json json = {{"source", std::filesystem::path(report.source).filename().string()},
               {"source_sha256", report.source_sha256},
               {"measured_steps", report.measured_steps},
               {"keys", Json::array()},
               {"heads", Json::array()}};
  for (const KeyFit& keys : report.keys) {
    json["keys"].push_back({{"layer", keys.layer},
                            {"kv_head", keys.kv_head},
                            {"clusters", keys.clusters},
                            {"between_share", keys.between_share},
                            {"stay", keys.stay},
                            {"drift_share", keys.drift_share},
                            {"splits_per_1000_tokens", keys.splits_per_1000_tokens}});
  }
  for (const HeadFit& head : report.heads) {
    json["heads"].push_back({{"layer", head.layer},
                             {"kv_head", head.kv_head},
                             {"query_head", head.query_head},
                             {"recorded", report_json(head.recorded)},
                             {"synthetic", report_json(head.synthetic)}});
  }
  return json;
}

struct SynthOptions {
  std::string out;
  std::string like;
  std::optional<std::int64_t> tokens;
  std::string report;
  SynthesisOptions synthesis;
};

void check_name(const std::string& out) {
  if (out.size() > kReportEnding.size() && out.ends_with(kReportEnding)) return;
  throw UserError({out, ""}, "is no name for a synthetic trace",
                  "NAME" + std::string(kReportEnding) + ", because the name says what it is");
}

bool has_adapters(const TraceReader& trace) {
  for (std::int64_t i = 0; i < std::ssize(trace.info().recorded_layers); ++i) {
    if (!trace.adapter_names(i).empty()) return true;
  }
  return false;
}

void synthesise(SynthOptions options) {
  check_name(options.out);
  if (options.like.empty()) options.like = find_trace("story", {"synth", "--like"});
  if (!options.report.empty()) {
    check_not_input(options.report, options.like);
    check_not_input(options.report, options.out);
  }
  SynthesisOptions& wanted = options.synthesis;
  const TraceReader source(options.like);
  if (options.tokens) {
    const std::int64_t steps = wanted.decode_steps.value_or(source.info().decode_steps());
    wanted.decode_steps = steps;
    if (*options.tokens <= steps) {
      throw UserError({"synth", "--tokens"}, "found " + std::to_string(*options.tokens),
                      "more than the " + std::to_string(steps) + " decode steps");
    }
    wanted.prompt_tokens = *options.tokens - steps;
  }
  if (wanted.threads == 0) wanted.threads = processor_count();
  std::optional<Progress> progress(std::in_place, "fit", Synthesiser::fit_work(source, wanted));
  const Synthesiser synthesiser(source, wanted, &*progress);
  // Reported now rather than after an hour of writing.
  check_free_space(options.out, static_cast<std::uint64_t>(synthesiser.file_bytes()));
  progress.emplace("write", synthesiser.write_work());
  synthesiser.write(options.out, &*progress);
  progress.reset();
  if (!options.report.empty()) {
    write_text_file(options.report, report_json(synthesiser.report()).dump(2) + "\n");
  }
  std::cout << to_text(synthesiser.report());
  std::cerr << "kvreplay: wrote " << options.out << " ("
            << size_text(static_cast<std::int64_t>(std::filesystem::file_size(options.out)))
            << ")\n";
  if (has_adapters(source)) {
    std::cerr << "kvreplay: it has no adapters, which " << options.like
              << " has; `kvreplay adapt ANOTHER " << shell_word(options.out)
              << " NEW` computes them, where ANOTHER is the same with another --seed\n";
  }
}

}  // namespace

void add_synth(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "synth", "Make a synthetic trace of any shape and length from a real one's statistics");
  auto options = std::make_shared<SynthOptions>();
  SynthesisOptions& wanted = options->synthesis;
  command
      ->add_option("OUT", options->out,
                   "The trace to write: a name that ends in " + std::string(kReportEnding))
      ->required()
      ->check(CLI::NonexistentPath)
      ->type_name("");
  takes_traces(command->add_option("--like", options->like,
                                   "The real trace to learn from (default: story, which ships)"))
      ->type_name("TRACE");
  command
      ->add_option("--like-layers", wanted.like_layers,
                   "Its layers to learn from, by the model's numbers (default: all)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number_range())
      ->type_name("N,N");
  const auto integer = [&](const char* name, auto& value, std::int64_t min, const char* help) {
    command->add_option(name, value, help)
        ->check(in_range(min, std::int64_t{1} << 31))
        ->type_name("N");
  };
  integer("--layers", wanted.layers, 1,
          "Layers, numbered from 0 (default: those of the real trace)");
  integer(
      "--query-heads", wanted.query_heads, 1,
      "Query heads per layer, a multiple of the KV heads (default: the real trace's per KV head)");
  integer("--kv-heads", wanted.kv_heads, 1, "KV heads per layer (default: the real trace's)");
  integer("--head-dim", wanted.head_dim, 2, "Length of a vector, even (default: the real trace's)");
  const auto count = [&](const char* name, auto& value, const char* help) {
    command->add_option(name, value, help)
        ->transform(in_count_range(1, std::int64_t{1} << 31))
        ->type_name("N");
  };
  count("--prompt", wanted.prompt_tokens, "Prompt tokens (default: the real trace's)");
  count("--steps", wanted.decode_steps, "Decode steps (default: the real trace's)");
  CLI::Option* tokens = command->add_option("--tokens", options->tokens,
                                            "Prompt and decode steps together, in place of "
                                            "--prompt");
  tokens->transform(in_count_range(2, std::int64_t{1} << 31))->type_name("N");
  tokens->excludes(command->get_option("--prompt"));
  command
      ->add_option("--query-window", wanted.query_window,
                   "Prompt positions before the first step that have queries")
      ->check(in_range(std::int64_t{0}, std::int64_t{1} << 31))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--dtype", wanted.dtype, "How vectors are stored (default: the real trace's)")
      ->check(one_of({"f16", "bf16"}))
      ->type_name("f16|bf16");
  command
      ->add_option("--clusters", wanted.clusters,
                   "Clusters of keys per KV head (default: fitted, 8 to 64)")
      ->check(in_range(1, 1024))
      ->type_name("N");
  command->add_option("--drift", wanted.drift, "Factor on the fitted wandering of clusters")
      ->check(in_range(0.0, 100.0))
      ->type_name("X")
      ->capture_default_str();
  command
      ->add_option("--splits", wanted.splits_per_1000_tokens,
                   "Splits of clusters per 1,000 tokens (default: fitted)")
      ->check(in_range(0.0, 1000.0))
      ->type_name("X");
  command->add_option("--seed", wanted.seed, "Seed of every random choice")
      ->check(in_range(std::uint64_t{0}, std::uint64_t{1} << 62))
      ->type_name("N")
      ->capture_default_str();
  add_threads_option(*command, wanted.threads, "the trace does");
  command
      ->add_option("--report", options->report,
                   "Also write the comparison of real and synthetic heads; "
                   "`tools/plot synthesis` draws it")
      ->type_name("FILE.json");
  command->footer(
      "Examples:\n"
      "  kvreplay synth small.synthetic.kvtrace.h5\n"
      "  kvreplay synth llama-128k.synthetic.kvtrace.h5 --layers 32 --kv-heads 8 --query-heads 32 "
      "\\\n      --head-dim 128 --tokens 131072 --steps 64 --report fit.json");
  command->callback([options] { synthesise(*options); });
}

}  // namespace kvreplay
