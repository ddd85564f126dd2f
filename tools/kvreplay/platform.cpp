#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/config_folder.hpp"
#include "base/error.hpp"
#include "base/files.hpp"
#include "base/output_file.hpp"
#include "base/parallel.hpp"
#include "base/utc_time.hpp"
#include "devices/real/host.hpp"
#include "sim/live/platform_probe.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/model_files.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {
namespace {

struct ProbeCommand {
  std::string model;
  std::vector<std::string> systems{"flexgen", "quest",    "clusterkv",        "kvswap",
                                   "dynakv",  "shadowkv", "infinigen_star_ru"};
  std::string scratch;
  ConfigFolder configs = ConfigFolder::standard();
  PlatformProbeOptions options{.threads = 0};
  std::string out;
};

/// Each system with a few budgets, where it has one: its parts then do little and much.
std::vector<SystemSpec> systems_to_measure(const ProbeCommand& command) {
  std::vector<SystemSpec> systems;
  for (const std::string& name : command.systems) {
    ConfigNode node = command.configs.find("systems", name, {"--systems", ""});
    if (node.has("grouping") && node.at("grouping").has("window_tokens")) {
      node = node.with("grouping.window_tokens", "16");  // few steps are measured
    }
    const std::string stem = std::filesystem::path(node.place().file).stem().string();
    if (!node.has("selection") || !node.at("selection").has("budget_tokens")) {
      systems.push_back(SystemSpec::parse(node, stem));
      continue;
    }
    for (const char* budget : {"64", "256"}) {
      ConfigNode changed = node.with("selection.budget_tokens", budget);
      if (changed.at("selection").has("budget_share")) {
        changed = changed.with("selection.budget_share", "0");
      }
      systems.push_back(SystemSpec::parse(changed, stem));
    }
  }
  return systems;
}

void probe_machine(const ProbeCommand& command) {
  check_is_new(command.out);
  const Model model(find_model(command.model));
  PlatformProbeOptions options = command.options;
  if (options.threads == 0) options.threads = processor_count();
  options.systems = systems_to_measure(command);
  options.scratch = command.scratch.empty() ? command.out + ".scratch" : command.scratch;
  if (!options.overwrite_scratch) check_is_new(options.scratch);
  options.on_point = [](const std::string& what) { std::cerr << "kvreplay: " << what << '\n'; };
  const HostFacts host = host_facts();
  const std::string source = "kvreplay platform probe --model " + model.name() + " --threads " +
                             std::to_string(options.threads) + " on " + host.name + ", " +
                             host.kernel + ", " + utc_now().substr(0, 10);
  const PlatformMeasurement measurement = probe_platform(model, options);
  const std::string json = platform_json(
      measurement, host.name + ": " + std::to_string(options.threads) + " threads, as measured",
      source);
  // What is written can be read.
  (void)PlatformSpec::parse(ConfigNode::parse(json, command.out),
                            std::filesystem::path(command.out).stem().string());
  write_text_file(command.out, json);
  std::cerr << "kvreplay: wrote " << command.out << "; `kvreplay explain " << command.out
            << "` shows what is measured\n";
  if (const std::string text = disturbance(measurement.stolen_share); !text.empty()) {
    std::cerr << "kvreplay: disturbed: " << text << "; measure again when it is idle\n";
  }
}

}  // namespace

void add_platform(CLI::App& program) {
  CLI::App* platform =
      program.add_subcommand("platform", "Measure this machine as a platform of the simulator");
  platform->require_subcommand(1);
  CLI::App* command = platform->add_subcommand(
      "probe", "Measure the kernels that the cost model charges, and write a platform file");
  auto options = std::make_shared<ProbeCommand>();
  command
      ->add_option("--model", options->model,
                   "At whose shapes: a model of fetch-model by name, or a model file")
      ->required()
      ->type_name("NAME|FILE");
  command
      ->add_option("--threads", options->options.threads,
                   "Threads of the products (default: as many as the machine has)")
      ->check(in_range(1, 1024))
      ->type_name("N");
  command
      ->add_option("--systems", options->systems,
                   "Systems whose parts are measured: scores, decoding, grouping and what they ask "
                   "of the host")
      ->delimiter(',')
      ->type_name("NAME,NAME")
      ->capture_default_str();
  command
      ->add_option("--scratch", options->scratch,
                   "A new file of 256 MiB for their entries, which is gone with the process "
                   "(default: beside --out)")
      ->type_name("FILE");
  command->add_flag("--allow-destructive", options->options.overwrite_scratch,
                    "The scratch file or block device is there, and what it holds may be lost");
  add_configs_option(*command, options->configs);
  command->add_option("--seconds", options->options.seconds, "Time of each point")
      ->check(in_range(0.01, 3600.0))
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--out", options->out, "The platform file to write; missing folders are made")
      ->required()
      ->type_name("FILE");
  command->footer(
      "What is not measured is an estimate by the roofline of the measured rates; `explain` tells "
      "the two apart. Example:\n"
      "  kvreplay platform probe --model smollm2-135m --threads 2 --out mine.json\n"
      "  kvreplay run first --set platform=./mine.json --set model=smollm2-135m");
  command->callback([options] { probe_machine(*options); });
}

}  // namespace kvreplay
