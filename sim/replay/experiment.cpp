#include "sim/replay/experiment.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/argument_json.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "sim/replay/experiment_source.hpp"
#include "traces/shipped.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// A named config file of one kind, with the settings that apply to it.
struct NamedConfig {
  std::string name;
  ConfigNode node;
  bool is_own_file = false;  ///< the user chose a file that is none of configs/
  /// The settings applied, by the path in `node`: key and value.
  std::map<std::string, std::pair<std::string, Value>> applied;
};

/// What a setting may name in a config: a parameter, or the part of a role (no parameter).
struct Target {
  std::string path;
  const Parameter* parameter = nullptr;
};

/// How settings reach into the configs of one kind.
struct Kind {
  std::string member;  ///< member of the experiment, such as "system"
  std::string folder;  ///< folder of configs/, such as "systems"
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

/// The parameters of a part. Empty for an unknown part, which parsing reports.
std::span<const Parameter> part_parameters(const std::string& role, const std::string& part) {
  const auto found = part_catalogue().find({role, part});
  if (found == part_catalogue().end()) return {};
  return found->second.parameters;
}

/// By name only. Whether the parts fit each other is checked once every setting has been applied.
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

/// A part that replaces another keeps those of its arguments that it also has.
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

std::string text_of(const ConfigNode& value) {
  return value.raw().is_string() ? value.text() : value.raw().dump();
}

/// Checks the value where it was given, because the file that it ends up in may be correct.
Value checked_value(const Setting& setting, const Target& target) {
  if (target.parameter != nullptr) {
    Arguments arguments;
    arguments.set_place(setting.place());
    arguments.set(*target.parameter, setting.value.argument());
    return arguments.all().begin()->second.value;
  }
  const std::string role = target.path.substr(0, target.path.find('.'));
  std::vector<std::string> parts;
  for (const auto& [key, part] : part_catalogue()) {
    if (key.first == role) parts.push_back(key.second);
  }
  const std::string part = text_of(setting.value);
  if (std::find(parts.begin(), parts.end(), part) == parts.end()) {
    throw unknown_name(setting.place(), role, part, parts);
  }
  return part;
}

/// What the settings of a whole experiment have affected. A key may have no effect in one
/// combination, but must have one in some other.
class Reach {
 public:
  /// Whether it must reach something (`required`), or is only told where it does not.
  void note(const Setting& setting, bool applied, bool required, std::set<std::string> targets) {
    Key& key = keys_[{setting.key, setting.from_file}];
    if (key.targets.empty()) key.place = setting.place();
    key.applied |= applied;
    key.required |= required;
    key.targets.merge(targets);
  }
  void note_override(const Setting& setting, const std::string& file, const std::string& found) {
    overrides_.insert(setting.place().file + ": " + setting.place().within + ": " + setting.key +
                      " = " + text_of(setting.value) + " replaces " + found + " of " + file);
  }
  [[nodiscard]] std::vector<std::string> notes() const {
    std::vector<std::string> lines(overrides_.begin(), overrides_.end());
    for (const auto& [name, key] : keys_) {
      if (key.applied || key.required) continue;
      lines.push_back(key.place.file + ": " + key.place.within + ": " + name.first +
                      " is not used: it reaches nothing that was chosen in place of the file's");
    }
    return lines;
  }
  void check() const {
    for (const auto& [name, key] : keys_) {
      if (key.applied || !key.required) continue;
      const std::string role = name.first.substr(0, name.first.find('.'));
      throw unknown_name(key.place, role + " parameter", name.first.substr(role.size() + 1),
                         std::vector<std::string>(key.targets.begin(), key.targets.end()));
    }
  }

 private:
  struct Key {
    SourceLocation place;
    bool applied = false;
    bool required = false;
    std::set<std::string> targets;
  };
  std::map<std::pair<std::string, bool>, Key> keys_;
  std::set<std::string> overrides_;
};

/// What a config itself says at "cache.capacity_groups"; "" where it says nothing.
std::string explicit_text(ConfigNode node, const std::string& path) {
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    if (!node.has(name)) return "";
    node = node.at(name);
    begin = end + 1;
  }
  return node.has("value") ? text_of(node.at("value")) : text_of(node);
}

/// A system that `kvreplay tune` found means something with the arguments that it was judged with:
/// a setting of an experiment's file does not replace them in passing.
void check_tuned(const NamedConfig& config, const Setting& setting, const std::string& path) {
  if (!config.node.has("judged_with")) return;
  const std::string found = explicit_text(config.node, path);
  if (found.empty() || found == text_of(setting.value)) return;
  const std::string file = config.node.place().file;
  throw UserError(setting.place(),
                  setting.key + " = " + text_of(setting.value) + " would replace " + found +
                      " of " + file + ", which was judged with it",
                  "`kvreplay run " + (fs::path(file).parent_path() / "replay.json").string() +
                      "`, or --set " + setting.key + "=" + found + " to keep it");
}

void apply_setting(const Kind& kind, const Setting& setting, const std::string& key, bool required,
                   std::vector<NamedConfig>& configs, Reach& reach) {
  std::set<std::string> known;
  bool applied = false;
  for (NamedConfig& config : configs) {
    const bool named = key.starts_with(config.name + ".");
    const std::string path = named ? key.substr(config.name.size() + 1) : key;
    for (const Target& target : kind.targets(config.node)) {
      known.insert(target.path);
      if (target.path != path) continue;
      const Value value = checked_value(setting, target);
      if (setting.from_file) check_tuned(config, setting, path);
      if (config.is_own_file && setting.from_file) {
        const std::string found = explicit_text(config.node, path);
        if (!found.empty() && found != text_of(setting.value)) {
          reach.note_override(setting, config.node.place().file, found);
        }
      }
      config.node = kind.apply(config.node, path, text_of(setting.value));
      config.applied.insert_or_assign(path, std::pair(setting.key, value));
      applied = true;
    }
  }
  reach.note(setting, applied, required, std::move(known));
}

/// Reads every file once.
class Files {
 public:
  const ConfigNode& load(const ConfigFolder& configs, const std::string& kind,
                         const std::string& file) {
    const auto found = files_.find(file);
    if (found != files_.end()) return found->second;
    return files_.emplace(file, configs.load(kind, file)).first->second;
  }

 private:
  std::map<std::string, ConfigNode> files_;
};

/// The configs that an experiment's member names, with their settings applied.
std::vector<NamedConfig> load_configs(const Kind& kind, const Point& point,
                                      const ConfigFolder& folder, Files& files, Reach& reach) {
  const ConfigNode member = point.member(kind.member);
  const Setting* chosen = point.find(kind.member);
  const bool file_knew = chosen == nullptr || chosen->from_file;
  std::vector<NamedConfig> configs;
  std::set<std::string> seen;
  for (const ConfigNode& item : member.items()) {
    const std::string file = folder.file(kind.folder, beside_experiment(item), item.place());
    const ConfigNode& node = files.load(folder, kind.folder, file);
    std::string name = node.has("name") ? node.at("name").text() : fs::path(file).stem().string();
    if (!seen.insert(name).second) {
      throw UserError(item.place(), "found '" + name + "' twice", "each " + kind.member + " once");
    }
    const bool is_own_file = !file_knew && item.text() == file;
    configs.push_back({std::move(name), node, is_own_file, {}});
  }
  if (configs.empty()) {
    throw UserError(member.place(), "found none", "at least one " + kind.member);
  }
  // Parts first, because a parameter may belong to a part that another setting chooses.
  std::vector<Setting> settings = point.settings();
  std::stable_partition(settings.begin(), settings.end(),
                        [](const Setting& setting) { return setting.key.ends_with(".part"); });
  for (const Setting& setting : settings) {
    const std::optional<std::string> key = setting.below(kind.member);
    if (!key) continue;
    // A command line that chooses other systems need not undo the file's settings of its own
    // systems.
    apply_setting(kind, setting, *key, !setting.from_file || file_knew, configs, reach);
  }
  return configs;
}

/// The variants of one kind: each config with its settings, once.
template <typename Spec>
class Variants {
 public:
  explicit Variants(std::vector<Spec>& specs) : specs_(specs) {}

  /// Indices in `specs`, to which new variants are appended.
  template <typename Parse>
  std::vector<std::size_t> take(const std::vector<NamedConfig>& configs, Parse&& parse) {
    std::vector<std::size_t> indices;
    for (const NamedConfig& config : configs) {
      const auto key = std::pair(config.node.place().file, config.node.raw().dump());
      const auto [known, is_new] = known_.emplace(key, specs_.size());
      if (is_new) specs_.push_back(parse(config.node, config.name));
      indices.push_back(known->second);
    }
    return indices;
  }

 private:
  std::vector<Spec>& specs_;
  std::map<std::pair<std::string, std::string>, std::size_t> known_;
};

/// Indices in `known`, to which new traces are appended after a check that each is complete.
std::vector<std::size_t> load_traces(const Point& point, const fs::path& folder,
                                     std::vector<std::string>& known) {
  const Setting* setting = point.find("trace");
  const bool from_file = setting == nullptr || setting->from_file;
  const ConfigNode member = point.member("trace");
  std::vector<std::size_t> indices;
  for (const ConfigNode& item : member.items()) {
    const fs::path path = find_trace(item.text(), item.place());
    const std::string file = (from_file ? folder / path : path).lexically_normal().string();
    const auto found = std::find_if(known.begin(), known.end(), [&](const std::string& other) {
      return trace_name(other) == trace_name(file);
    });
    const auto index = static_cast<std::size_t>(found - known.begin());
    const bool twice = std::find(indices.begin(), indices.end(), index) != indices.end();
    if (twice || (found != known.end() && *found != file)) {
      throw UserError(item.place(), "found '" + trace_name(file) + "' twice",
                      "traces with names of their own");
    }
    if (found == known.end()) {
      static_cast<void>(TraceReader(file));
      known.push_back(file);
    }
    indices.push_back(index);
  }
  if (indices.empty()) throw UserError(member.place(), "found none", "at least one");
  return indices;
}

std::vector<std::int64_t> load_batches(const Point& point) {
  static const Parameter kBatch =
      integer_parameter("batch", "sequences", std::nullopt, {1, 4096}, "sequences per batch");
  const ConfigNode member = point.member("batch");
  std::vector<std::int64_t> batches;
  for (const ConfigNode& item : values_of(member)) {
    Arguments argument;
    argument.set_place({item.place().file, ""});
    argument.set(kBatch, item.argument());
    batches.push_back(argument.integer("batch"));
  }
  if (batches.empty()) throw UserError(member.place(), "found none", "at least one");
  return batches;
}

/// Builds an experiment, one combination after the other.
class Loader {
 public:
  Loader(const ExperimentSource& source, const ConfigFolder& configs, Experiment& experiment)
      : source_(source),
        configs_(configs),
        experiment_(experiment),
        systems_(experiment.systems),
        models_(experiment.models),
        platforms_(experiment.platforms),
        devices_(experiment.devices) {}

  void load() {
    experiment_.swept = source_.swept;
    for (std::string& key : experiment_.swept) {
      // "steps" is a column already; the results say what their own parameters are.
      if (key.find('.') == std::string::npos) key = "experiment." + key;
    }
    if (source_.has_cases) experiment_.swept.insert(experiment_.swept.begin(), "case");
    for (const Point& point : source_.points) take(point);
    reach_.check();
    experiment_.notes = reach_.notes();
    drop_unreached();
  }

 private:
  void take(const Point& point) {
    const Arguments arguments = point.arguments();
    experiment_.threads = static_cast<int>(arguments.integer("threads"));
    Cell cell;
    cell.seed = static_cast<std::uint64_t>(arguments.integer("seed"));
    cell.steps = arguments.integer("steps");
    cell.timed_steps = arguments.integer("timed_steps");
    cell.warm_up_steps = arguments.integer("warm_up_steps");
    cell.prefill_chunk_tokens = arguments.integer("prefill_chunk_tokens");
    cell.after_prefill = arguments.flag("after_prefill");
    cell.shared_prefix = arguments.flag("shared_prefix");
    cell.idle_s = arguments.real("idle_s");
    cell.idle_drops = arguments.text("idle_drops");
    cell.turns_read = arguments.text("turns_read");
    cell.sustained_s = arguments.real("sustained_s");
    cell.conversation_tokens = arguments.integer("conversation_tokens");
    cell.conversations_per_day = arguments.real("conversations_per_day");
    const std::vector<std::int64_t> batches = load_batches(point);

    const auto configs = [&](const Kind& kind) {
      return load_configs(kind, point, configs_, files_, reach_);
    };
    const std::vector<NamedConfig> system_configs = configs(kSystems);
    const std::vector<NamedConfig> model_configs = configs(kModels);
    const std::vector<NamedConfig> platform_configs = configs(kPlatforms);
    const std::vector<NamedConfig> device_configs = configs(kDevices);
    const std::vector<std::size_t> systems = systems_.take(system_configs, SystemSpec::parse);
    const std::vector<std::size_t> models = models_.take(model_configs, ModelSpec::parse);
    const std::vector<std::size_t> platforms =
        platforms_.take(platform_configs, PlatformSpec::parse);
    const std::vector<std::size_t> devices = devices_.take(
        device_configs,
        [](const ConfigNode& node, const std::string&) { return DeviceSpec::parse(node); });
    const fs::path folder = fs::path(source_.file.place().file).parent_path();
    for (const std::size_t trace : load_traces(point, folder, experiment_.traces)) {
      for (std::size_t m = 0; m < models.size(); ++m) {
        for (std::size_t p = 0; p < platforms.size(); ++p) {
          for (const std::int64_t batch : batches) {
            for (std::size_t d = 0; d < devices.size(); ++d) {
              for (std::size_t s = 0; s < systems.size(); ++s) {
                cell.trace = trace;
                cell.model = models[m];
                cell.platform = platforms[p];
                cell.batch = batch;
                cell.device = devices[d];
                cell.system = systems[s];
                cell.settings = settings_of(point, arguments,
                                            {&system_configs[s], &model_configs[m],
                                             &platform_configs[p], &device_configs[d]});
                add(cell);
              }
            }
          }
        }
      }
    }
  }

  /// Drops keys of the file that reach no cell, because --set chose something else.
  void drop_unreached() {
    for (std::size_t i = experiment_.swept.size(); i-- > 0;) {
      const bool reached =
          std::any_of(experiment_.cells.begin(), experiment_.cells.end(),
                      [&](const Cell& cell) { return cell.settings[i].has_value(); });
      if (reached) continue;
      const auto at = static_cast<std::ptrdiff_t>(i);
      experiment_.swept.erase(experiment_.swept.begin() + at);
      for (Cell& cell : experiment_.cells) cell.settings.erase(cell.settings.begin() + at);
    }
  }

  /// The values of the swept keys in this combination of configs.
  [[nodiscard]] std::vector<std::optional<Value>> settings_of(
      const Point& point, const Arguments& arguments,
      std::initializer_list<const NamedConfig*> configs) const {
    std::vector<std::optional<Value>> settings;
    if (source_.has_cases) settings.emplace_back(point.case_name());
    for (const std::string& key : source_.swept) {
      std::optional<Value>& value = settings.emplace_back();
      if (key.find('.') == std::string::npos) value = arguments.all().find(key)->second.value;
      for (const NamedConfig* config : configs) {
        for (const auto& [path, applied] : config->applied) {
          if (applied.first == key) value = applied.second;
        }
      }
    }
    return settings;
  }

  void add(const Cell& cell) {
    std::string identity;
    for (const std::size_t index :
         {cell.trace, cell.system, cell.model, cell.platform, cell.device}) {
      identity += std::to_string(index) + ' ';
    }
    identity += std::to_string(cell.batch);
    for (const std::optional<Value>& value : cell.settings) {
      identity += '\n' + (value ? to_text(*value) : "-");
    }
    if (seen_.insert(identity).second) experiment_.cells.push_back(cell);
  }

  const ExperimentSource& source_;
  const ConfigFolder& configs_;
  Experiment& experiment_;
  Files files_;
  Reach reach_;
  Variants<SystemSpec> systems_;
  Variants<ModelSpec> models_;
  Variants<PlatformSpec> platforms_;
  Variants<DeviceSpec> devices_;
  std::set<std::string> seen_;
};

/// The distinct values of a cell's member, in order: a single value alone, several as a list.
template <typename Member>
json distinct(const std::vector<Cell>& cells, Member Cell::*member) {
  json values = json::array();
  std::set<Member> seen;
  for (const Cell& cell : cells) {
    if (seen.insert(cell.*member).second) values.push_back(cell.*member);
  }
  return values.size() == 1 ? values.front() : values;
}

/// Adds a variant under its name, alone or in the list of those that share the name.
void add_variant(json& object, const std::string& name, json variant) {
  if (!object.contains(name)) {
    object[name] = std::move(variant);
    return;
  }
  json& there = object[name];
  if (!there.is_array()) there = json::array({std::move(there)});
  there.push_back(std::move(variant));
}

/// Hashes what each cell uses, independently of where the files are.
std::string cells_hash(const Experiment& experiment) {
  Sha256 hash;
  for (const Cell& cell : experiment.cells) {
    json row = {cell.trace,
                cell.system,
                cell.model,
                cell.platform,
                cell.device,
                cell.batch,
                cell.seed,
                cell.steps,
                cell.timed_steps,
                cell.warm_up_steps,
                cell.prefill_chunk_tokens,
                cell.after_prefill,
                cell.shared_prefix,
                cell.idle_s,
                cell.idle_drops,
                cell.turns_read,
                cell.sustained_s,
                cell.conversation_tokens,
                cell.conversations_per_day};
    for (const std::optional<Value>& value : cell.settings) {
      row.push_back(value ? to_json(*value) : json());
    }
    hash.update(row.dump());
  }
  return hash.hex();
}

}  // namespace

std::span<const Parameter> Experiment::parameters() {
  static const std::array kParameters{
      integer_parameter("seed", "", 1, {0, 9.007e15}, "seed of every random choice"),
      integer_parameter("threads", "", 0, {0, 1024},
                        "worker threads; 0 = one per hardware thread; results do not depend on it"),
      integer_parameter("steps", "steps", 0, {0, 1e9},
                        "decode steps to replay; 0 = all steps of the trace"),
      integer_parameter("timed_steps", "steps", 64, {0, 1e9},
                        "decode steps to simulate in time, drawn evenly; 0 = all after warm-up"),
      integer_parameter("warm_up_steps", "steps", 16, {0, 1e9},
                        "first decode steps that fill the caches and are not timed"),
      integer_parameter("prefill_chunk_tokens", "tokens", 512, {0, 1e9},
                        "tokens of the prompt that a layer computes together; 0 = the prefill is "
                        "not simulated"),
      flag_parameter("after_prefill", false,
                     "whether decoding begins on the device as the prefill leaves it: with a full "
                     "write buffer, a booster in use, heat; false: on one that has done nothing"),
      flag_parameter(
          "shared_prefix", false,
          "whether the sequences of a batch have their prompt in common, as many "
          "questions about one document: it is computed and written once, and all read it"),
      real_parameter("idle_s", "s", 60, {0, 1e6},
                     "of a conversation: time between an answer and the next question"),
      choice_parameter(
          "idle_drops", {"nothing", "cache", "memory"}, "nothing",
          "of a conversation: what idle time takes from memory: nothing, the cache, or "
          "memory (all but the weights, which is written before and read back)"),
      choice_parameter("turns_read", {"all", "selected"}, "all",
                       "of a conversation: the entries that new tokens of a later turn are "
                       "prefilled against: all, or those that the system selects for them"),
      real_parameter("sustained_s", "s", 0, {0, 1e6},
                     "seconds of decoding without a pause, after the prefill, that are simulated "
                     "besides, for clocks and heat: minutes.csv; 0 = none"),
      integer_parameter("conversation_tokens", "tokens", 256, {0, 1e9},
                        "tokens decoded per conversation, for wear"),
      real_parameter("conversations_per_day", "", 50, {0, 1e9},
                     "conversations a day, for years_of_life"),
  };
  return kParameters;
}

Experiment Experiment::load(const std::string& file, std::span<const std::string> sets,
                            const ConfigFolder& configs) {
  const ExperimentSource source(file, sets);
  Experiment experiment;
  experiment.name = fs::path(file).stem().string();
  experiment.title = source.file.at("title").text();
  std::copy_if(sets.begin(), sets.end(), std::back_inserter(experiment.sets),
               [](const std::string& set) { return !set.starts_with("threads="); });
  Loader(source, configs, experiment).load();
  return experiment;
}

std::string Experiment::resolved() const {
  json object;
  for (const std::string& trace : traces) object["trace"].push_back(trace_name(trace));
  for (const SystemSpec& system : systems) {
    add_variant(object["system"], system.name, json::parse(system.resolved()));
  }
  for (const ModelSpec& model : models) {
    json arguments = to_json(model.arguments);
    arguments.update(json::parse(model.by_layer));
    add_variant(object["model"], model.name, std::move(arguments));
  }
  for (const PlatformSpec& platform : platforms) {
    add_variant(object["platform"], platform.name, json::parse(platform.resolved()));
  }
  for (const DeviceSpec& device : devices) {
    add_variant(object["device"], device.name,
                part_json(device.device.name(), device.device.arguments()));
  }
  object["batch"] = distinct(cells, &Cell::batch);
  if (!object["batch"].is_array()) object["batch"] = json::array({object["batch"]});
  object["seed"] = distinct(cells, &Cell::seed);
  object["steps"] = distinct(cells, &Cell::steps);
  object["timed_steps"] = distinct(cells, &Cell::timed_steps);
  object["warm_up_steps"] = distinct(cells, &Cell::warm_up_steps);
  object["prefill_chunk_tokens"] = distinct(cells, &Cell::prefill_chunk_tokens);
  object["after_prefill"] = distinct(cells, &Cell::after_prefill);
  object["shared_prefix"] = distinct(cells, &Cell::shared_prefix);
  object["idle_s"] = distinct(cells, &Cell::idle_s);
  object["idle_drops"] = distinct(cells, &Cell::idle_drops);
  object["turns_read"] = distinct(cells, &Cell::turns_read);
  object["sustained_s"] = distinct(cells, &Cell::sustained_s);
  object["conversation_tokens"] = distinct(cells, &Cell::conversation_tokens);
  object["conversations_per_day"] = distinct(cells, &Cell::conversations_per_day);
  if (!swept.empty()) {
    object["swept"] = swept;
    object["cells"] = cells.size();
    object["cells_sha256"] = cells_hash(*this);
  }
  return object.dump();
}

std::string trace_name(const std::string& file) {
  const std::string name = fs::path(file).filename().string();
  static constexpr std::string_view kEnding = ".kvtrace.h5";
  if (name.ends_with(kEnding)) return name.substr(0, name.size() - kEnding.size());
  return fs::path(name).stem().string();
}

}  // namespace kvreplay
