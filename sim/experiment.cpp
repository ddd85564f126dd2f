#include "sim/experiment.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "sim/base/argument_json.hpp"
#include "sim/base/error.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// Members of an experiment that take one value or a list of them.
const std::vector<std::string> kLists{"trace", "system", "model", "platform", "device", "batch"};

bool is_list(const std::string& member) {
  return std::find(kLists.begin(), kLists.end(), member) != kLists.end();
}

json json_or_text(std::string_view text) {
  json value = json::parse(text, nullptr, false);
  return value.is_discarded() ? json(text) : value;
}

std::vector<std::string> split_commas(std::string_view text) {
  std::vector<std::string> pieces;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pieces;
}

/// "key=value" from --set or a member of the file's "set".
struct Setting {
  std::string key;
  std::string value;  ///< JSON, or else text
  Place place;
  bool from_file = false;

  /// The key below `role` ("cache.part" of "system.cache.part"), if it is one of that role.
  [[nodiscard]] std::optional<std::string> below(const std::string& role) const {
    if (!key.starts_with(role + ".")) return std::nullopt;
    return key.substr(role.size() + 1);
  }
};

/// An experiment's file with the settings beside it.
class Source {
 public:
  Source(const std::string& file, std::span<const std::string> sets)
      : node_(ConfigNode::load(file)) {
    for (const Parameter& parameter : Experiment::parameters()) {
      members_.push_back(parameter.name);
    }
    members_.insert(members_.end(), kLists.begin(), kLists.end());
    std::vector<std::string> allowed = members_;
    allowed.insert(allowed.end(), {"title", "set"});
    node_.allow_only(allowed);
    if (node_.has("set")) read_file_settings(node_.at("set"));
    for (const std::string& set : sets) read_command_setting(set);
  }

  [[nodiscard]] const ConfigNode& file() const { return node_; }
  [[nodiscard]] const std::vector<Setting>& settings() const { return settings_; }
  [[nodiscard]] bool overridden(const std::string& member) const {
    return overrides_.contains(member);
  }
  /// The member's value: from the command line where it was given there.
  [[nodiscard]] ConfigNode at(const std::string& member) const {
    const auto found = overrides_.find(member);
    return found == overrides_.end() ? node_.at(member) : found->second;
  }

  /// The experiment's own parameters.
  [[nodiscard]] Arguments arguments() const {
    std::vector<std::string> others = kLists;
    others.insert(others.end(), {"title", "set"});
    Arguments arguments = parse_arguments(node_, Experiment::parameters(), others);
    for (const Parameter& parameter : Experiment::parameters()) {
      if (!overridden(parameter.name)) continue;
      const ConfigNode value = at(parameter.name);
      arguments.set_place({value.place().file, ""});
      arguments.set(parameter, value.argument());
    }
    return arguments;
  }

 private:
  void read_file_settings(const ConfigNode& set) {
    for (const std::string& key : set.keys()) {
      const ConfigNode value = set.at(key);
      if (!is_role_key(key)) throw unknown_key(value.place(), key);
      const bool is_text = value.raw().is_string();
      settings_.push_back({key, is_text ? value.text() : value.raw().dump(), value.place(), true});
    }
  }

  void read_command_setting(const std::string& set) {
    const Place place{"--set " + set, ""};
    const std::size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UserError(place, "found no key=value", "such as device=emmc51");
    }
    if (equals + 1 == set.size()) {
      throw UserError(place, "found no value", "key=value, such as device=emmc51");
    }
    const std::string key = set.substr(0, equals);
    const std::string value = set.substr(equals + 1);
    if (is_role_key(key)) {
      settings_.push_back({key, value, place, false});
      return;
    }
    if (std::find(members_.begin(), members_.end(), key) == members_.end()) {
      throw unknown_key(place, key);
    }
    json parsed = json_or_text(value);
    if (is_list(key)) {
      parsed = json::array();
      for (const std::string& piece : split_commas(value)) parsed.push_back(json_or_text(piece));
    }
    overrides_.insert_or_assign(key, ConfigNode::parse(parsed.dump(), place.file));
  }

  static bool is_role_key(const std::string& key) {
    return std::any_of(kRoles.begin(), kRoles.end(),
                       [&](const std::string& role) { return key.starts_with(role + "."); });
  }

  [[nodiscard]] UserError unknown_key(const Place& place, const std::string& key) const {
    std::vector<std::string> names = members_;
    for (const std::string& role : kRoles) names.push_back(role + ".PARAMETER");
    return unknown_name(place, "key", key, names);
  }

  inline static const std::array<std::string, 4> kRoles{"system", "model", "platform", "device"};

  ConfigNode node_;
  std::vector<std::string> members_;
  std::map<std::string, ConfigNode> overrides_;
  std::vector<Setting> settings_;
};

/// A named config file of one kind, with the settings that apply to it.
struct NamedConfig {
  std::string name;
  ConfigNode node;
};

/// What a setting may name in a config: a parameter, or the part of a role (no parameter).
struct Target {
  std::string path;
  const Parameter* parameter = nullptr;
};

/// How settings reach into the configs of one kind.
struct Kind {
  std::string member;  ///< of the experiment: "system"
  std::string folder;  ///< of configs/: "systems"
  std::vector<Target> (*targets)(const ConfigNode&);
  ConfigNode (*apply)(const ConfigNode&, const std::string& path, const std::string& value);
};

std::vector<Target> targets_of(std::span<const Parameter> parameters,
                               const std::string& prefix = "") {
  std::vector<Target> targets;
  for (const Parameter& parameter : parameters) {
    targets.push_back({prefix + parameter.name, &parameter});
  }
  return targets;
}

/// The parameters of a part; none when there is no such part, which parsing will say.
std::span<const Parameter> part_parameters(const std::string& role, const std::string& part) {
  const auto found = part_catalogue().find({role, part});
  if (found == part_catalogue().end()) return {};
  return found->second.parameters;
}

/// By name alone: whether the parts fit each other is seen once every setting has been applied.
std::vector<Target> system_targets(const ConfigNode& node) {
  std::vector<Target> targets = targets_of(DecideSpec::stream_parameters(), "stream.");
  for (const std::string& role : SystemSpec::roles()) {
    targets.push_back({role + ".part", nullptr});
    if (!node.has(role)) continue;
    const std::string part = node.at(role).at("part").text();
    for (Target& target : targets_of(part_parameters(role, part), role + ".")) {
      targets.push_back(std::move(target));
    }
  }
  return targets;
}

/// A part that takes another's place keeps those of its arguments that it has, too.
ConfigNode apply_to_system(const ConfigNode& system, const std::string& path,
                           const std::string& value) {
  const std::size_t dot = path.find('.');
  const std::string role = path.substr(0, dot);
  if (path.substr(dot + 1) != "part") return system.with(path, value);
  json member{{"part", value}};
  if (system.has(role)) {
    for (const Parameter& parameter : part_parameters(role, value)) {
      const std::string& name = parameter.name;
      if (system.at(role).has(name)) member[name] = system.at(role).at(name).raw();
    }
  }
  return system.with(role, member.dump());
}

ConfigNode apply_plainly(const ConfigNode& node, const std::string& path,
                         const std::string& value) {
  return node.with(path, value);
}

const Kind kSystems{"system", "systems", system_targets, apply_to_system};
const Kind kModels{"model", "models",
                   [](const ConfigNode&) { return targets_of(ModelSpec::parameters()); },
                   apply_plainly};
const Kind kPlatforms{"platform", "platforms",
                      [](const ConfigNode&) { return targets_of(PlatformSpec::parameters()); },
                      apply_plainly};
const Kind kDevices{"device", "devices",
                    [](const ConfigNode& device) {
                      return targets_of(part_parameters("device", device.at("part").text()));
                    },
                    apply_plainly};

/// Checks the value where it was given: what it ends up in may be a file that is right.
void check_value(const Setting& setting, const Target& target) {
  const ConfigNode value =
      ConfigNode::parse(json_or_text(setting.value).dump(), setting.place.file);
  if (target.parameter != nullptr) {
    Arguments arguments;
    arguments.set_place(setting.place);
    arguments.set(*target.parameter, value.argument());
    return;
  }
  const std::string role = target.path.substr(0, target.path.find('.'));
  std::vector<std::string> parts;
  for (const auto& [key, part] : part_catalogue()) {
    if (key.first == role) parts.push_back(key.second);
  }
  if (std::find(parts.begin(), parts.end(), setting.value) == parts.end()) {
    throw unknown_name(setting.place, role, setting.value, parts);
  }
}

void apply_setting(const Kind& kind, const Setting& setting, const std::string& key, bool required,
                   std::vector<NamedConfig>& configs) {
  std::vector<std::string> known;
  bool applied = false;
  for (NamedConfig& config : configs) {
    const bool named = key.starts_with(config.name + ".");
    const std::string path = named ? key.substr(config.name.size() + 1) : key;
    for (const Target& target : kind.targets(config.node)) {
      known.push_back(target.path);
      if (target.path != path) continue;
      check_value(setting, target);
      config.node = kind.apply(config.node, path, setting.value);
      applied = true;
    }
  }
  if (applied || !required) return;
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  throw unknown_name(setting.place, kind.member + " parameter", key, known);
}

/// The configs that an experiment's member names, settings applied.
std::vector<NamedConfig> load_configs(const Kind& kind, const Source& source,
                                      const ConfigFolder& folder) {
  std::vector<NamedConfig> configs;
  std::set<std::string> seen;
  for (const ConfigNode& item : source.at(kind.member).items()) {
    const std::string file = folder.file(kind.folder, item.text(), item.place());
    std::string name = fs::path(file).stem().string();
    if (!seen.insert(name).second) {
      throw UserError(item.place(), "found '" + name + "' twice", "each " + kind.member + " once");
    }
    configs.push_back({std::move(name), ConfigNode::load(file)});
  }
  if (configs.empty()) {
    throw UserError(source.at(kind.member).place(), "found none", "at least one " + kind.member);
  }
  // Parts first: a parameter may belong to the part that another setting chooses.
  std::vector<Setting> settings = source.settings();
  std::stable_partition(settings.begin(), settings.end(),
                        [](const Setting& setting) { return setting.key.ends_with(".part"); });
  for (const Setting& setting : settings) {
    const std::optional<std::string> key = setting.below(kind.member);
    if (!key) continue;
    // Who picks other systems than the file need not undo what the file sets for its own.
    const bool required = !setting.from_file || !source.overridden(kind.member);
    apply_setting(kind, setting, *key, required, configs);
  }
  return configs;
}

/// Checks that each is a complete trace.
std::vector<std::string> load_traces(const Source& source) {
  const fs::path folder =
      source.overridden("trace") ? fs::path() : fs::path(source.file().place().file).parent_path();
  std::vector<std::string> traces;
  std::set<std::string> seen;
  for (const ConfigNode& item : source.at("trace").items()) {
    const std::string file = (folder / item.text()).lexically_normal().string();
    if (!seen.insert(trace_name(file)).second) {
      throw UserError(item.place(), "found '" + trace_name(file) + "' twice",
                      "traces with names of their own");
    }
    static_cast<void>(TraceReader(file));
    traces.push_back(file);
  }
  if (traces.empty()) throw UserError(source.at("trace").place(), "found none", "at least one");
  return traces;
}

std::vector<std::int64_t> load_batches(const Source& source) {
  static const Parameter kBatch =
      integer_parameter("batch", "sequences", std::nullopt, {1, 4096}, "sequences a batch");
  std::vector<std::int64_t> batches;
  for (const ConfigNode& item : source.at("batch").items()) {
    Arguments argument;
    argument.set_place({item.place().file, ""});
    argument.set(kBatch, item.argument());
    batches.push_back(argument.integer("batch"));
  }
  if (batches.empty()) throw UserError(source.at("batch").place(), "found none", "at least one");
  return batches;
}

}  // namespace

std::span<const Parameter> Experiment::parameters() {
  static const std::array kParameters{
      integer_parameter("seed", "", 1, {0, 9.007e15}, "of every random choice"),
      integer_parameter("threads", "", 0, {0, 1024},
                        "0 = as many as the machine has; results do not depend on it"),
      integer_parameter("steps", "steps", 0, {0, 1e9},
                        "decode steps to replay; 0 = all of the trace's"),
      integer_parameter("timed_steps", "steps", 64, {0, 1e9},
                        "decode steps to simulate in time, drawn evenly; 0 = all after warm-up"),
      integer_parameter("warm_up_steps", "steps", 16, {0, 1e9},
                        "first decode steps that fill the caches and are not timed"),
  };
  return kParameters;
}

Experiment Experiment::load(const std::string& file, std::span<const std::string> sets,
                            const ConfigFolder& configs) {
  const Source source(file, sets);
  Experiment experiment;
  experiment.name = fs::path(file).stem().string();
  experiment.title = source.file().at("title").text();
  const Arguments arguments = source.arguments();
  experiment.seed = static_cast<std::uint64_t>(arguments.integer("seed"));
  experiment.threads = static_cast<int>(arguments.integer("threads"));
  experiment.steps = arguments.integer("steps");
  experiment.timed_steps = arguments.integer("timed_steps");
  experiment.warm_up_steps = arguments.integer("warm_up_steps");
  experiment.batches = load_batches(source);
  for (NamedConfig& config : load_configs(kSystems, source, configs)) {
    experiment.systems.push_back(SystemSpec::parse(config.node, std::move(config.name)));
  }
  for (NamedConfig& config : load_configs(kModels, source, configs)) {
    experiment.models.push_back(ModelSpec::parse(config.node, std::move(config.name)));
  }
  for (NamedConfig& config : load_configs(kPlatforms, source, configs)) {
    experiment.platforms.push_back(PlatformSpec::parse(config.node, std::move(config.name)));
  }
  for (const NamedConfig& config : load_configs(kDevices, source, configs)) {
    experiment.devices.push_back(DeviceSpec::parse(config.node));
  }
  experiment.traces = load_traces(source);
  return experiment;
}

std::string Experiment::resolved() const {
  json object;
  for (const std::string& trace : traces) object["trace"].push_back(trace_name(trace));
  for (const SystemSpec& system : systems) {
    object["system"][system.name] = json::parse(system.resolved());
  }
  for (const ModelSpec& model : models) object["model"][model.name] = to_json(model.arguments);
  for (const PlatformSpec& platform : platforms) {
    object["platform"][platform.name] = to_json(platform.arguments);
  }
  for (const DeviceSpec& device : devices) {
    object["device"][device.name] = to_json(device.device.arguments());
    object["device"][device.name]["part"] = device.device.name();
  }
  object["batch"] = batches;
  object["seed"] = seed;
  object["steps"] = steps;
  object["timed_steps"] = timed_steps;
  object["warm_up_steps"] = warm_up_steps;
  return object.dump();
}

std::string trace_name(const std::string& file) {
  const std::string name = fs::path(file).filename().string();
  static constexpr std::string_view kEnding = ".kvtrace.h5";
  if (name.ends_with(kEnding)) return name.substr(0, name.size() - kEnding.size());
  return fs::path(name).stem().string();
}

}  // namespace kvreplay
