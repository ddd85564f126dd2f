#include "traces/operations/inspect.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "sim/replay/system_problems.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/python_tool.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const TraceInfo& info) {
  Json json = {{"model", info.model},
               {"model_revision", info.model_revision},
               {"weights_sha256", info.weights_sha256},
               {"layers", info.layers},
               {"query_heads", info.query_heads},
               {"kv_heads", info.kv_heads},
               {"head_dim", info.head_dim},
               {"hidden_size", info.hidden_size},
               {"recorded_layers", info.recorded_layers},
               {"prompt_tokens", info.prompt_tokens},
               {"tokens", info.tokens},
               {"dtype", info.dtype},
               {"key_state", info.key_state},
               {"rope_theta", info.rope_theta},
               {"rope_pairs", info.rope_pairs},
               {"rope_scaling", info.rope_scaling},
               {"softmax_scale", info.softmax_scale},
               {"tokenizer", info.tokenizer},
               {"text_source", info.text_source},
               {"text_sha256", info.text_sha256},
               {"tool", info.tool},
               {"tool_version", info.tool_version},
               {"seed", info.seed},
               {"created_utc", info.created_utc},
               {"synthetic", info.synthetic}};
  if (!info.segments.empty()) {
    Json& segments = json["segments"] = Json::array();
    for (const Segment& segment : info.segments) {
      segments.push_back(
          {{"role", segment.role}, {"begin", segment.begin}, {"generated", segment.generated}});
    }
  }
  if (!info.layer_rope_theta.empty()) json["layer_rope_theta"] = info.layer_rope_theta;
  return json;
}

Json to_json(const LayerSummary& layer) {
  Json json = {{"layer", layer.layer},
               {"query_start", layer.query_start},
               {"sliding_window", layer.sliding_window},
               {"key_norm_mean", layer.key_norm.mean},
               {"key_norm_max", layer.key_norm.max},
               {"value_norm_mean", layer.value_norm.mean},
               {"value_norm_max", layer.value_norm.max},
               {"attention", nullptr},
               {"adapters", layer.adapters}};
  if (layer.attention) {
    json["attention"] = {{"entropy_nats", layer.attention->entropy_nats},
                         {"top_16_mass", layer.attention->top_16_mass},
                         {"top_64_mass", layer.attention->top_64_mass},
                         {"top_256_mass", layer.attention->top_256_mass},
                         {"first_16_mass", layer.attention->first_16_mass},
                         {"last_64_mass", layer.attention->last_64_mass}};
  }
  return json;
}

Json to_json(const TraceSummary& summary) {
  Json json = {{"file", summary.file},
               {"file_bytes", summary.file_bytes},
               {"info", to_json(summary.info)},
               {"measured_steps", summary.measured_steps},
               {"perplexity", summary.perplexity},
               {"decode_perplexity", nullptr},
               {"layers", Json::array()}};
  if (summary.decode_perplexity) json["decode_perplexity"] = *summary.decode_perplexity;
  for (const LayerSummary& layer : summary.layers) json["layers"].push_back(to_json(layer));
  return json;
}

/// The systems that the trace cannot run, and what to do, "" where there is none.
std::string problems_text(std::span<const SystemProblem> problems) {
  std::string text;
  for (const SystemProblem& problem : problems) {
    text += "\ncannot run: " + join(problem.systems) + "\n  " + problem.reason + "\n";
  }
  return text;
}

Json to_json(std::span<const SystemProblem> problems) {
  Json json = Json::array();
  for (const SystemProblem& problem : problems) {
    json.push_back({{"systems", problem.systems}, {"reason", problem.reason}});
  }
  return json;
}

}  // namespace

void add_inspect(CLI::App& program) {
  struct Options {
    std::string trace;
    bool json = false;
    std::string plot;
    ConfigFolder configs = ConfigFolder::standard();
  };
  CLI::App* command =
      program.add_subcommand("inspect", "Show what a trace holds and how its attention is spread");
  auto options = std::make_shared<Options>();
  add_trace_argument(*command, "TRACE", options->trace);
  command->add_flag("--json", options->json, "Print JSON");
  command
      ->add_option(
          "--plot", options->plot,
          "Also draw, as PDF and PNG: values (histograms), mass (attention mass against the "
          "budget), keys (their drift in two principal components)")
      ->type_name("FOLDER");
  add_configs_option(*command, options->configs);
  command->footer(
      "Example:\n"
      "  kvreplay inspect story --plot figures");
  command->callback([options] {
    const TraceReader trace(options->trace);
    const TraceInfo& info = trace.info();
    std::optional<Progress> progress(std::in_place, "measure",
                                     std::ssize(info.recorded_layers) * info.query_heads);
    const TraceSummary summary = summarise(trace, &*progress);
    progress.reset();
    const std::vector<SystemProblem> problems = system_problems(trace, options->configs);
    if (options->json) {
      Json json = to_json(summary);
      json["cannot_run"] = to_json(problems);
      std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
    } else {
      std::cout << to_text(summary) << problems_text(problems);
    }
    if (!options->plot.empty()) {
      std::cout.flush();
      std::cerr << "kvreplay: drawing figures into " << options->plot << '\n';
      const std::string arguments[] = {options->trace, options->plot};
      run_python_tool("plot_trace", arguments);
    }
  });
}

}  // namespace kvreplay
