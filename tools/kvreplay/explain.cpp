#include <CLI/CLI.hpp>
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.hpp"
#include "sim/replay/experiment.hpp"
#include "sim/replay/system_page.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"

namespace kvreplay {
namespace {

std::string with_unit(const std::string& value, const Parameter& parameter) {
  return parameter.unit.empty() ? value : value + " " + parameter.unit;
}

/// Two lines per parameter: its value and range, and its meaning.
void print_parameters(std::span<const Parameter> parameters, const Arguments* arguments) {
  for (const Parameter& parameter : parameters) {
    std::cout << "  " << parameter.name;
    std::string source;
    if (arguments != nullptr) {
      const Argument& argument = arguments->all().find(parameter.name)->second;
      std::cout << " = " << with_unit(to_text(argument.value), parameter);
      source = argument.source;
    }
    std::cout << "  ("
              << (parameter.default_value ? "default " + to_text(*parameter.default_value)
                                          : std::string("required"))
              << "; " << allowed_text(parameter) << ")\n      " << parameter.help;
    if (!source.empty()) std::cout << "  [" << source << "]";
    std::cout << '\n';
  }
}

void print_heading(const std::string& name, const std::string& title, const std::string& source) {
  std::cout << name << ": " << title << '\n';
  if (!source.empty()) std::cout << "source: " << source << '\n';
}

void print_part(const std::string& role, const std::string& name, const Arguments& arguments) {
  const PartInfo& part = part_catalogue().at({role, name});
  std::cout << '\n' << role << ": " << name << "\n  " << part.help << "  [" << part.source << "]\n";
  print_parameters(part.parameters, &arguments);
}

void explain_system(const std::string& file) {
  const SystemSpec system = SystemSpec::load(file);
  print_heading(system.name, system.title, system.source);
  if (!system.differs.empty()) std::cout << "differs from its source:\n";
  for (const std::string& difference : system.differs) std::cout << "  - " << difference << '\n';
  for (const SystemSpec::Member& member : system.members()) {
    if (member.part.empty()) {
      std::cout << '\n' << member.role << '\n';
      print_parameters(member.parameters, member.arguments);
    } else {
      print_part(member.role, member.part, *member.arguments);
    }
  }
}

void explain_device(const std::string& file) {
  const DeviceSpec spec = DeviceSpec::load(file);
  print_heading(spec.name, spec.title, "");
  if (!spec.notes.empty()) std::cout << spec.notes << '\n';
  print_part(std::string(Device::kRole), spec.device.name(), spec.device.arguments());
}

/// Shows a model or a platform.
template <typename Spec>
void explain_numbers(const std::string& file) {
  const Spec spec = Spec::load(file);
  print_heading(spec.name, spec.title, spec.source);
  print_parameters(Spec::parameters(), &spec.arguments);
}

void explain_experiment(const std::string& file) {
  const ConfigNode node = ConfigNode::load(file);
  std::cout << file << ": " << node.at("title").text() << '\n';
  for (const std::string& member : node.keys()) {
    if (member == "title") continue;
    std::cout << "  " << member << ": " << node.at(member).raw().dump() << '\n';
  }
  std::cout << "\nparameters of every experiment\n";
  print_parameters(Experiment::parameters(), nullptr);
}

struct Kind {
  std::string name;
  void (*explain)(const std::string& file);
};

const std::array<Kind, 5> kKinds{{{"systems", explain_system},
                                  {"devices", explain_device},
                                  {"models", explain_numbers<ModelSpec>},
                                  {"platforms", explain_numbers<PlatformSpec>},
                                  {"experiments", explain_experiment}}};

void explain_part(const PartInfo& part) {
  print_heading(part.role + "/" + part.name, part.help, part.source);
  print_parameters(part.parameters, nullptr);
}

/// Everything of that name, because a name may stand for parts of several roles. "cache/none" names
/// one of them.
void explain(const std::string& wanted, const ConfigFolder& configs) {
  std::vector<std::string> known;
  bool found = false;
  const auto is_wanted = [&](const std::string& kind, const std::string& name) {
    known.push_back(name);
    if (wanted != name && wanted != kind + "/" + name) return false;
    if (found) std::cout << '\n';
    found = true;
    return true;
  };
  for (const Kind& kind : kKinds) {
    for (const std::string& name : configs.names(kind.name)) {
      if (is_wanted(kind.name, name)) kind.explain(configs.file(kind.name, name, {}));
    }
  }
  for (const auto& [key, part] : part_catalogue()) {
    if (is_wanted(part.role, part.name)) explain_part(part);
  }
  if (!found) throw unknown_name({}, "name", wanted, known);
}

}  // namespace

void add_explain(CLI::App& program) {
  struct Options {
    std::string name;
    bool markdown = false;
    ConfigFolder configs = ConfigFolder::standard();
  };
  CLI::App* command = program.add_subcommand(
      "explain", "Show what a system, device, model, platform, experiment or part consists of");
  auto options = std::make_shared<Options>();
  command->add_option("NAME", options->name, "A name from `list`")->required()->type_name("");
  add_configs_option(*command, options->configs);
  command->add_flag("--markdown", options->markdown,
                    "For a system: print its page of docs/systems");
  command->footer(
      "Examples:\n  kvreplay explain kvswap\n  kvreplay explain emmc51\n"
      "  kvreplay explain cache/fifo");
  command->callback([options] {
    if (options->markdown) {
      std::cout << system_page(
          SystemSpec::load(options->configs.file("systems", options->name, {})));
    } else {
      explain(options->name, options->configs);
    }
  });
}

}  // namespace kvreplay
