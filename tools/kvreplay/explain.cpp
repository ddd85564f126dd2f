#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/registry.hpp"
#include "sim/replay/experiment.hpp"
#include "sim/replay/results.hpp"
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

void explain_system(const std::string& file, const ConfigFolder& configs) {
  const SystemSpec system = SystemSpec::load(file, configs);
  print_heading(system.name, system.title, system.source);
  if (!system.notes.empty()) std::cout << system.notes << '\n';
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

void explain_device(const std::string& file, const ConfigFolder& configs) {
  const DeviceSpec spec = DeviceSpec::load(file, configs);
  print_heading(spec.name, spec.title, spec.source);
  if (!spec.notes.empty()) std::cout << spec.notes << '\n';
  print_part(std::string(Device::kRole), spec.device.name(), spec.device.arguments());
}

/// Shows what a model file gives by layer; print_parameters() shows the first layer's values.
void print_lists(const ModelSpec& model) {
  const nlohmann::json lists = nlohmann::json::parse(model.by_layer);
  if (!lists.empty()) std::cout << "\nby layer\n";
  for (const auto& [name, values] : lists.items()) {
    std::cout << "  " << name << " = " << values.dump() << '\n';
  }
}

/// Shows a model or a platform.
template <typename Spec>
void explain_numbers(const std::string& file, const ConfigFolder& configs) {
  const Spec spec = Spec::load(file, configs);
  print_heading(spec.name, spec.title, spec.source);
  if (!spec.notes.empty()) std::cout << spec.notes << '\n';
  print_parameters(Spec::parameters(), &spec.arguments);
  if constexpr (std::is_same_v<Spec, ModelSpec>) print_lists(spec);
}

void explain_platform(const std::string& file, const ConfigFolder& configs) {
  explain_numbers<PlatformSpec>(file, configs);
  const PlatformSpec platform = PlatformSpec::load(file, configs);
  std::cout << "\nkernels\n";
  if (!platform.kernels) {
    std::cout << "  none is measured: all are estimates by the roofline of the numbers above\n";
    return;
  }
  const MeasuredKernels& kernels = *platform.kernels;
  std::cout << "  of one sequence, weights of " << kernels.weight_bits << " bits, "
            << kernels.threads << " threads (" << kernels.source << ")\n";
  const auto print_points = [](const std::string& name, const MeasuredKernel& kernel) {
    std::cout << "  " << name << ": measured at " << kernel.points().size() << " points,";
    for (const MeasuredKernel::Point& point : kernel.points()) {
      std::cout << ' ' << point.work << " in " << point.us << " us,";
    }
    std::cout << " and between them\n";
  };
  MeasuredKernels::for_kinds(kernels, [&](const std::string& name, const MeasuredKind& kind) {
    const bool by_roofline = name == "matrix_vector" || name == "attention" || name == "score";
    const char* otherwise = by_roofline ? "estimate, by the roofline\n" : "not charged\n";
    if (kind.any.measured()) print_points(name, kind.any);
    for (const auto& [part, kernel] : kind.parts) print_points(name + " of " + part, kernel);
    if (!kind.measured()) {
      std::cout << "  " << name << ": " << otherwise;
    } else if (!kind.any.measured()) {
      std::cout << "  " << name << " of other parts: " << otherwise;
    }
  });
  std::cout << "  a batch of several sequences, other weights: estimates, by the roofline\n";
}

void explain_experiment(const std::string& file, const ConfigFolder&) {
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
  void (*explain)(const std::string& file, const ConfigFolder& configs);
  std::string_view known_by;  ///< a member that only files of this kind have
};

const std::array<Kind, 5> kKinds{{{"systems", explain_system, "grouping"},
                                  {"devices", explain_device, "queue_depth"},
                                  {"models", explain_numbers<ModelSpec>, "hidden_size"},
                                  {"platforms", explain_platform, "compute_gflop_s"},
                                  {"experiments", explain_experiment, "trace"}}};

void explain_part(const PartInfo& part) {
  print_heading(part.role + "/" + part.name, part.help, part.source);
  print_parameters(part.parameters, nullptr);
}

/// A config file of one's own is known by what it has, or its base has.
void explain_file(const std::string& file, const ConfigFolder& configs) {
  const ConfigNode node = ConfigNode::load(file);
  std::vector<std::string> members;
  for (const Kind& kind : kKinds) {
    members.emplace_back(kind.known_by);
    bool is_of_kind = node.has(kind.known_by);
    if (!is_of_kind && node.has("base")) {
      try {
        is_of_kind = configs.load(kind.name, file).has(kind.known_by);
      } catch (const UserError&) {
        // The base is of another kind, or that kind's page says what is wrong with it.
      }
    }
    if (is_of_kind) return kind.explain(file, configs);
  }
  if (node.has("base")) static_cast<void>(configs.load("devices", file));  // says what is wrong
  throw UserError(node.place(),
                  "found neither a system, a device, a model, a platform nor an "
                  "experiment",
                  "a file with one of the members " + join(members));
}

/// A parameter, wherever it is declared: each declaration once, with those who share it.
void explain_parameter(const std::string& name) {
  std::map<std::string, std::vector<std::string>> owners;  // by what is printed
  const auto add = [&](const std::string& owner, std::span<const Parameter> parameters) {
    for (const Parameter& parameter : parameters) {
      if (parameter.name != name) continue;
      owners["  (" +
             (parameter.default_value ? "default " + to_text(*parameter.default_value)
                                      : std::string("required")) +
             "; " + allowed_text(parameter) + ")\n      " + parameter.help]
          .push_back(owner);
    }
  };
  add("system.stream", DecideSpec::stream_parameters());
  for (const auto& [key, part] : part_catalogue())
    add(key.first + "/" + key.second, part.parameters);
  add("models", ModelSpec::parameters());
  add("platforms", PlatformSpec::parameters());
  add("experiments", Experiment::parameters());
  std::cout << name << ": a parameter\n";
  for (const auto& [text, of] : owners) std::cout << "of " << join(of) << '\n' << text << '\n';
}

std::set<std::string> parameter_names() {
  std::set<std::string> names;
  const auto add = [&](std::span<const Parameter> parameters) {
    for (const Parameter& parameter : parameters) names.insert(parameter.name);
  };
  add(DecideSpec::stream_parameters());
  for (const auto& [key, part] : part_catalogue()) add(part.parameters);
  add(ModelSpec::parameters());
  add(PlatformSpec::parameters());
  add(Experiment::parameters());
  return names;
}

/// What a column of results means, by its name.
std::map<std::string, std::string> metrics() {
  std::map<std::string, std::string> metrics;
  for (const Column<CellResult>& column : result_columns()) metrics[column.name] = column.help;
  for (const auto& column : quality_columns()) metrics.try_emplace(column.name, column.help);
  return metrics;
}

/// Everything of that name: a name may stand for a part of several roles. "cache/none" is one.
void explain(const std::string& wanted, const ConfigFolder& configs) {
  if (wanted.ends_with(".json")) return explain_file(wanted, configs);
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
      if (is_wanted(kind.name, name)) kind.explain(configs.file(kind.name, name, {}), configs);
    }
  }
  for (const auto& [key, part] : part_catalogue()) {
    if (is_wanted(part.role, part.name)) explain_part(part);
  }
  for (const auto& [name, help] : metrics()) {
    if (!is_wanted("metrics", name)) continue;
    std::cout << name << ": a metric, a column of results (docs/metrics.md)\n  " << help << '\n';
  }
  for (const std::string& name : parameter_names()) {
    if (is_wanted("parameters", name)) explain_parameter(name);
  }
  if (found) return;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(wanted + ".json", ignored)) {
    return explain_file(wanted + ".json", configs);
  }
  const std::string near = nearest_name(wanted, known);
  throw UserError(
      {}, "unknown name '" + wanted + "'" + (near.empty() ? "" : " (did you mean '" + near + "'?)"),
      "a config file, or a name of `kvreplay list` systems, devices, models, platforms, "
      "experiments, parts or metrics, or a parameter");
}

}  // namespace

void add_explain(CLI::App& program) {
  struct Options {
    std::string name;
    bool markdown = false;
    ConfigFolder configs = ConfigFolder::standard();
  };
  CLI::App* command = program.add_subcommand(
      "explain",
      "Show what a system, device, model, platform, experiment or part consists of, and what a "
      "metric or a parameter means");
  auto options = std::make_shared<Options>();
  command->add_option("NAME", options->name, "As `list` shows it, or a config file")
      ->required()
      ->type_name("");
  add_configs_option(*command, options->configs);
  command->add_flag("--markdown", options->markdown,
                    "For a system: print its page of docs/systems");
  command->footer(
      "Examples:\n  kvreplay explain kvswap\n  kvreplay explain emmc51\n"
      "  kvreplay explain cache/fifo\n  kvreplay explain ./mine.json\n"
      "  kvreplay explain latency_ms\n  kvreplay explain budget_tokens");
  command->callback([options] {
    if (options->markdown) {
      std::cout << system_page(
          SystemSpec::load(options->configs.file("systems", options->name, {}), options->configs));
    } else {
      explain(options->name, options->configs);
    }
  });
}

}  // namespace kvreplay
