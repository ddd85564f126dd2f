#include "sim/time/restore.hpp"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "base/number_text.hpp"
#include "base/size.hpp"
#include "base/table.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {
namespace {

struct RestoreCommand {
  std::vector<std::string> models;
  std::vector<std::string> platforms;
  std::vector<std::string> devices;
  std::vector<std::int64_t> lengths{1024, 4096, 16384, 65536};
  std::int64_t max_tokens = 131072;
  Prefix prefix;
  bool csv = false;
  ConfigFolder configs = ConfigFolder::standard();
};

/// Each with the name of its file.
template <typename Spec>
std::vector<Spec> load_all(const RestoreCommand& command, const std::string& kind,
                           const std::vector<std::string>& names, const std::string& option) {
  std::vector<Spec> specs;
  for (const std::string& name : names) {
    specs.push_back(Spec::load(command.configs.file(kind, name, {option, ""})));
  }
  return specs;
}

void compare(const RestoreCommand& command) {
  const auto models = load_all<ModelSpec>(command, "models", command.models, "--model");
  const auto platforms =
      load_all<PlatformSpec>(command, "platforms", command.platforms, "--platform");
  const auto devices = load_all<DeviceSpec>(command, "devices", command.devices, "--device");
  constexpr auto kLeft = Table::Align::kLeft;
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"model", kLeft, 12},
               {"platform", kLeft, 10},
               {"device", kLeft, 8},
               {"tokens", kRight, 7},
               {"MB", kRight, 8},
               {"restore ms", kRight, 11},
               {"recompute ms", kRight, 12},
               {"crossover tokens", kRight, 16}});
  std::string csv = "model,platform,device,tokens,bytes,restore_ms,recompute_ms,crossover_tokens\n";
  for (const ModelSpec& model : models) {
    for (const PlatformSpec& platform : platforms) {
      for (const DeviceSpec& device : devices) {
        const std::optional<std::int64_t> crossover =
            restore_crossover(model, platform, device, command.prefix, command.max_tokens);
        for (const std::int64_t tokens : command.lengths) {
          Prefix prefix = command.prefix;
          prefix.tokens = tokens;
          const RestoreTimes times = restore_times(model, platform, device, prefix);
          const double restore_ms = static_cast<double>(times.restore_ns) / 1e6;
          const double recompute_ms = static_cast<double>(times.recompute_ns) / 1e6;
          const std::string from = crossover ? std::to_string(*crossover) : "";
          table.add_row({model.name, platform.name, device.name, std::to_string(tokens),
                         fixed_text(static_cast<double>(times.bytes) / 1e6, 1),
                         fixed_text(restore_ms, 1), fixed_text(recompute_ms, 1),
                         crossover ? from : "over " + std::to_string(command.max_tokens)});
          csv += model.name + ',' + platform.name + ',' + device.name + ',' +
                 std::to_string(tokens) + ',' + std::to_string(times.bytes) + ',' +
                 shortest_text(restore_ms) + ',' + shortest_text(recompute_ms) + ',' + from + '\n';
        }
      }
    }
  }
  std::cout << (command.csv ? csv : table.text());
}

}  // namespace

void add_restore(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "restore", "Compare reading a conversation's entries back with computing them anew");
  auto options = std::make_shared<RestoreCommand>();
  const auto names = [&](const char* option, std::vector<std::string>& values, const char* help) {
    command->add_option(option, values, help)->required()->delimiter(',')->type_name("NAME,...");
  };
  names("--model", options->models, "Models, by name or file");
  names("--platform", options->platforms, "Platforms");
  names("--device", options->devices, "Devices");
  const auto tokens = [&](const char* option, auto& value, const char* help) {
    return command->add_option(option, value, help)
        ->transform(CLI::Validator(read_count, ""))
        ->check(in_range(std::int64_t{1}, std::int64_t{1} << 24))
        ->type_name("N")
        ->capture_default_str();
  };
  tokens("--lengths", options->lengths, "Tokens whose entries lie on the device")
      ->delimiter(',')
      ->type_name("N,...");
  tokens("--new-tokens", options->prefix.new_tokens,
         "Tokens of the next question, which are prefilled either way");
  tokens("--chunk-tokens", options->prefix.chunk_tokens, "Tokens that a layer computes together");
  tokens("--max-tokens", options->max_tokens, "The crossover is looked for up to here");
  command->add_flag("--csv", options->csv, "Print CSV");
  add_configs_option(*command, options->configs);
  command->footer(
      "Entries have 16 bits per element. From the crossover on, reading takes no longer.\n"
      "Example:\n"
      "  kvreplay restore --model llama3.2-3b --platform oneplus12 --device sd_a2,ufs40");
  command->callback([options] { compare(*options); });
}

}  // namespace kvreplay
