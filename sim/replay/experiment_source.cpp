#include "sim/replay/experiment_source.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/key_value.hpp"
#include "base/size.hpp"
#include "base/utf8.hpp"
#include "sim/replay/experiment.hpp"

namespace kvreplay {

using nlohmann::json;

namespace {

const std::vector<std::string> kLists{"trace", "system", "model", "platform", "device", "batch"};
const std::vector<std::string> kRoles{"system", "model", "platform", "device"};
const std::vector<std::string> kOthers{"title", "set", "zip", "cases"};

constexpr std::size_t kMaxValues = 100'000;
constexpr std::size_t kMaxPoints = 100'000;

bool contains(std::span<const std::string> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> member_names() {
  std::vector<std::string> names;
  for (const Parameter& parameter : Experiment::parameters()) names.push_back(parameter.name);
  names.insert(names.end(), kLists.begin(), kLists.end());
  return names;
}

bool is_role_key(const std::string& key) {
  return std::any_of(kRoles.begin(), kRoles.end(),
                     [&](const std::string& role) { return key.starts_with(role + "."); });
}

UserError unknown_key(const SourceLocation& place, const std::string& key) {
  std::vector<std::string> names = member_names();
  for (const std::string& role : kRoles) names.push_back(role + ".PARAMETER");
  return unknown_name(place, "key", key, names);
}

void check_key(const SourceLocation& place, const std::string& key) {
  if (!is_role_key(key) && !contains(member_names(), key)) throw unknown_key(place, key);
}

// --- Values: one, a list, or a range ---

/// An end of a range: a number, or a size such as "64KiB".
struct RangeEnd {
  double value = 0;
  bool whole = false;
  bool size = false;
};

RangeEnd range_end(const ConfigNode& node) {
  const Value value = node.argument().value;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    return {static_cast<double>(*integer), true, false};
  }
  if (const auto* real = std::get_if<double>(&value); real != nullptr && std::isfinite(*real)) {
    return {*real, false, false};
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (const auto bytes = parse_size_with_unit(*text))
      return {static_cast<double>(*bytes), true, true};
  }
  throw UserError(node.place(), "found " + type_name(value) + " " + to_text(value),
                  "a number or a size such as 64KiB");
}

double positive(const ConfigNode& node, double above) {
  const RangeEnd end = range_end(node);
  if (end.size || !(end.value > above)) {
    throw UserError(node.place(), "found " + to_text(node.argument().value),
                    "a number above " + to_text(above));
  }
  return end.value;
}

/// Rounds to twelve digits, so that the result does not depend on the C library's power function.
double rounded(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number,
                                 std::chars_format::scientific, 11)
                       .ptr;
  double value = 0;
  std::from_chars(text.data(), end, value);
  return value;
}

/// The numbers of {"from", "to"} with one of "step", "factor" or "count" (and "scale").
std::vector<double> range_numbers(const ConfigNode& node, const RangeEnd& from,
                                  const RangeEnd& to) {
  const bool counted = node.has("count");
  if (int{counted} + int{node.has("step")} + int{node.has("factor")} != 1) {
    throw UserError(node.place(), "found a range without one way to go from value to value",
                    "exactly one of step, factor and count");
  }
  std::string scale = node.has("factor") ? "log" : "linear";
  if (node.has("scale")) {
    scale = node.at("scale").text();
    static const std::vector<std::string> kScales{"linear", "log"};
    if (!contains(kScales, scale)) {
      throw unknown_name(node.at("scale").place(), "scale", scale, kScales);
    }
    if (!counted) throw UserError(node.at("scale").place(), "a scale without count", "count");
  }
  if (from.value > to.value) {
    throw UserError(node.at("to").place(), "found " + to_text(to.value),
                    "at least from, " + to_text(from.value));
  }
  if (scale == "log" && !(from.value > 0)) {
    throw UserError(node.at("from").place(), "found " + to_text(from.value),
                    "above 0 on a scale that multiplies");
  }

  const auto at = [&](double share) {
    if (scale == "log") return from.value * std::pow(to.value / from.value, share);
    return from.value + (to.value - from.value) * share;
  };
  std::vector<double> numbers;
  if (counted) {
    const double count = positive(node.at("count"), 0);
    if (count != std::floor(count) || count > static_cast<double>(kMaxValues)) {
      throw UserError(node.at("count").place(), "found " + to_text(count),
                      "an integer from 1 to " + std::to_string(kMaxValues));
    }
    if (count == 1) return {from.value};
    for (double i = 0; i + 1 < count; ++i) numbers.push_back(at(i / (count - 1)));
    numbers.push_back(to.value);
    return numbers;
  }
  const bool multiplies = node.has("factor");
  const double by = multiplies ? positive(node.at("factor"), 1) : positive(node.at("step"), 0);
  for (double i = 0;; ++i) {
    const double number = multiplies ? from.value * std::pow(by, i) : from.value + by * i;
    // A number slightly beyond the end counts as the end, because 0.1 x 3 exceeds 0.3.
    if (number > to.value + 1e-9 * std::abs(to.value)) return numbers;
    numbers.push_back(number);
    if (numbers.size() > kMaxValues) {
      throw UserError(node.place(), "found more than " + std::to_string(kMaxValues) + " values",
                      "a larger step or factor");
    }
  }
}

/// Where both ends are whole, the numbers are rounded to whole ones without repetition.
std::vector<ConfigNode> range_values(const ConfigNode& node) {
  static const std::vector<std::string> kMembers{"from", "to", "step", "factor", "count", "scale"};
  node.allow_only(kMembers);
  const RangeEnd from = range_end(node.at("from"));
  const RangeEnd to = range_end(node.at("to"));
  const bool step_whole = !node.has("step") || range_end(node.at("step")).whole;
  const bool whole = from.whole && to.whole && step_whole;
  // Errors about a value name the range that it comes from.
  const SourceLocation place = node.place();
  const std::string origin = place.within.empty() ? place.file : place.file + ": " + place.within;
  std::vector<ConfigNode> values;
  std::set<double> seen;
  for (double number : range_numbers(node, from, to)) {
    number = whole ? std::round(number) : rounded(number);
    if (!seen.insert(number).second) continue;
    json value = number;
    if (whole) value = static_cast<std::int64_t>(number);
    if (from.size || to.size) value = std::to_string(static_cast<std::int64_t>(number)) + "B";
    values.push_back(ConfigNode::parse(value.dump(), origin));
  }
  return values;
}

bool is_range(const ConfigNode& node) {
  return node.has("from") || node.has("to");
}

// --- The command line ---

json json_or_text(std::string_view text) {
  json value = json::parse(text, nullptr, false);
  return value.is_discarded() ? json(text) : value;
}

/// A value as given to --set: JSON, a text, or a comma list of them.
json command_value(std::string_view text, const std::string& key, const SourceLocation& place) {
  const json whole = json::parse(text, nullptr, false);
  if (whole.is_structured()) return ConfigNode::parse(text, place.file).raw();
  if (!whole.is_discarded() || text.find(',') == std::string_view::npos) return json_or_text(text);
  // The name of a file that is there may hold commas.
  std::error_code ignored;
  if (contains(kLists, key) && std::filesystem::is_regular_file(text, ignored)) return text;
  json list = json::array();
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    list.push_back(json_or_text(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return list;
}

// --- Alternatives ---

/// Settings that are chosen together.
struct Alternative {
  std::vector<Setting> settings;
  std::string case_name;
};
using Axis = std::vector<Alternative>;

/// One value per setting: a list or a range has no defined meaning inside a zip or a case.
Setting single(const std::string& key, const ConfigNode& value, bool from_file) {
  const bool list_member = contains(kLists, key);
  if (!list_member && (value.is_array() || is_range(value))) {
    throw UserError(value.place(), "found several values for '" + key + "'", "one value");
  }
  return {key, value, from_file};
}

/// Members that take lists keep them whole. For other keys, every value is an alternative.
Axis axis_of(const std::string& key, const ConfigNode& value, bool from_file) {
  if (contains(kLists, key)) return {{{{key, value, from_file}}, ""}};
  Axis axis;
  for (const ConfigNode& one : values_of(value)) {
    axis.push_back({{single(key, one, from_file)}, ""});
  }
  if (axis.empty()) throw UserError(value.place(), "found no value", "at least one");
  return axis;
}

/// Adds the experiment's own parameters for which the file lists several values.
void add_parameters(const ConfigNode& file, std::vector<Axis>& axes) {
  for (const Parameter& parameter : Experiment::parameters()) {
    if (!file.has(parameter.name)) continue;
    const ConfigNode value = file.at(parameter.name);
    if (value.is_array() || is_range(value)) axes.push_back(axis_of(parameter.name, value, true));
  }
}

void add_set(const ConfigNode& file, std::vector<Axis>& axes) {
  if (!file.has("set")) return;
  const ConfigNode set = file.at("set");
  for (const std::string& key : set.keys()) {
    const ConfigNode value = set.at(key);
    if (!is_role_key(key)) throw unknown_key(value.place(), key);
    axes.push_back(axis_of(key, value, true));
  }
}

Axis zip_axis(const ConfigNode& zip) {
  Axis axis;
  std::string first;
  for (const std::string& key : zip.keys()) {
    const ConfigNode list = zip.at(key);
    check_key(list.place(), key);
    const std::vector<ConfigNode> values = values_of(list);
    if (first.empty()) {
      first = key;
      axis.resize(values.size());
    }
    if (values.size() != axis.size()) {
      throw UserError(list.place(), "found " + std::to_string(values.size()) + " values",
                      std::to_string(axis.size()) + ", as many as '" + first + "' has");
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      axis[i].settings.push_back(single(key, values[i], true));
    }
  }
  if (axis.empty()) throw UserError(zip.place(), "found no value", "at least one");
  return axis;
}

void add_zips(const ConfigNode& file, std::vector<Axis>& axes) {
  if (!file.has("zip")) return;
  for (const ConfigNode& zip : file.at("zip").items()) axes.push_back(zip_axis(zip));
}

/// `picked`: names from --set case=...; empty = all cases.
void add_cases(const ConfigNode& file, const std::vector<ConfigNode>& picked,
               std::vector<Axis>& axes) {
  if (!file.has("cases")) {
    if (picked.empty()) return;
    throw UserError(picked.front().place(), "the experiment has no cases",
                    "an experiment with cases");
  }
  const ConfigNode cases = file.at("cases");
  std::vector<std::string> names = cases.keys();
  if (names.empty()) throw UserError(cases.place(), "found no case", "at least one");
  if (!picked.empty()) {
    std::set<std::string> wanted;
    for (const ConfigNode& name : picked) {
      if (!contains(names, name.text())) {
        throw unknown_name(name.place(), "case", name.text(), names);
      }
      wanted.insert(name.text());
    }
    std::erase_if(names, [&](const std::string& name) { return !wanted.contains(name); });
  }
  Axis axis;
  for (const std::string& name : names) {
    const ConfigNode one = cases.at(name);
    Alternative& made = axis.emplace_back();
    made.case_name = name;
    for (const std::string& key : one.keys()) {
      const ConfigNode value = one.at(key);
      check_key(value.place(), key);
      made.settings.push_back(single(key, value, true));
    }
  }
  axes.push_back(std::move(axis));
}

/// Removes `key`, which is set elsewhere. Alternatives that chose nothing else become one.
void forget(const std::string& key, std::vector<Axis>& axes) {
  for (Axis& axis : axes) {
    bool had_key = false;
    for (Alternative& alternative : axis) {
      had_key |= std::erase_if(alternative.settings,
                               [&](const Setting& setting) { return setting.key == key; }) > 0;
    }
    const bool is_empty = std::all_of(axis.begin(), axis.end(), [](const Alternative& a) {
      return a.settings.empty() && a.case_name.empty();
    });
    if (had_key && is_empty) axis.resize(1);
  }
}

std::vector<Axis> axes_of(const ConfigNode& file, std::span<const std::string> sets) {
  std::vector<ConfigNode> picked_cases;
  std::vector<Axis> command;
  for (const std::string& set : sets) {
    const SourceLocation place{"--set " + set, ""};
    const std::optional<KeyValue> given = split_key_value(set);
    if (!given) throw UserError(place, "found no key=value", "such as device=emmc51");
    if (given->value.empty()) {
      throw UserError(place, "found no value", "key=value, such as device=emmc51");
    }
    check_utf8(set, place);
    const std::string& key = given->key;
    const ConfigNode value =
        ConfigNode::parse(command_value(given->value, given->key, place).dump(), place.file);
    if (key == "case") {
      picked_cases = value.items();
      continue;
    }
    check_key(place, key);
    forget(key, command);
    command.push_back(axis_of(key, value, false));
  }
  std::vector<Axis> axes;
  add_parameters(file, axes);
  add_set(file, axes);
  add_zips(file, axes);
  add_cases(file, picked_cases, axes);
  for (Axis& axis : command) {
    if (axis.front().settings.empty()) continue;  // a later option sets the key again
    forget(axis.front().settings.front().key, axes);
    axes.push_back(std::move(axis));
  }
  return axes;
}

/// The combination of alternatives with this number; the last axis varies fastest.
Point point_at(const ConfigNode& file, const std::vector<Axis>& axes, std::size_t number) {
  std::vector<const Alternative*> chosen(axes.size());
  for (std::size_t i = axes.size(); i-- > 0;) {
    chosen[i] = &axes[i][number % axes[i].size()];
    number /= axes[i].size();
  }
  std::vector<Setting> settings;
  std::string case_name;
  for (const Alternative* alternative : chosen) {
    for (const Setting& setting : alternative->settings) {
      std::erase_if(settings, [&](const Setting& earlier) { return earlier.key == setting.key; });
      settings.push_back(setting);
    }
    if (!alternative->case_name.empty()) case_name = alternative->case_name;
  }
  return {file, std::move(settings), std::move(case_name)};
}

/// Keys with several values on some axis, or that only some alternatives set.
std::vector<std::string> swept_keys(const std::vector<Axis>& axes) {
  std::vector<std::string> swept;
  for (const Axis& axis : axes) {
    if (axis.size() < 2) continue;
    for (const Alternative& alternative : axis) {
      for (const Setting& setting : alternative.settings) {
        if (!contains(kLists, setting.key) && !contains(swept, setting.key)) {
          swept.push_back(setting.key);
        }
      }
    }
  }
  return swept;
}

}  // namespace

std::span<const std::string> list_members() {
  return kLists;
}

std::string beside_experiment(const ConfigNode& item) {
  std::string text = item.text();
  if (!text.starts_with("./") && !text.starts_with("../")) return text;
  const std::filesystem::path folder = std::filesystem::path(item.place().file).parent_path();
  std::error_code ignored;
  const std::filesystem::path beside = (folder / text).lexically_normal();
  return std::filesystem::is_regular_file(beside, ignored) ? beside.string() : text;
}

std::vector<ConfigNode> values_of(const ConfigNode& node) {
  if (is_range(node)) return range_values(node);
  return node.items();
}

std::optional<std::string> Setting::below(const std::string& role) const {
  if (!key.starts_with(role + ".")) return std::nullopt;
  return key.substr(role.size() + 1);
}

Point::Point(const ConfigNode& file, std::vector<Setting> settings, std::string case_name)
    : file_(file), settings_(std::move(settings)), case_name_(std::move(case_name)) {}

const Setting* Point::find(const std::string& key) const {
  const auto found = std::find_if(settings_.begin(), settings_.end(),
                                  [&](const Setting& setting) { return setting.key == key; });
  return found == settings_.end() ? nullptr : &*found;
}

ConfigNode Point::member(const std::string& name) const {
  const Setting* setting = find(name);
  return setting == nullptr ? file_.at(name) : setting->value;
}

Arguments Point::arguments() const {
  std::vector<std::string> others = kLists;
  others.insert(others.end(), kOthers.begin(), kOthers.end());
  std::vector<Parameter> from_file;
  for (const Parameter& parameter : Experiment::parameters()) {
    if (find(parameter.name) == nullptr) {
      from_file.push_back(parameter);
    } else {
      others.push_back(parameter.name);
    }
  }
  Arguments arguments = parse_arguments(file_, from_file, others);
  for (const Parameter& parameter : Experiment::parameters()) {
    const Setting* setting = find(parameter.name);
    if (setting == nullptr) continue;
    arguments.set_place({setting->place().file, ""});
    arguments.set(parameter, setting->value.argument());
  }
  return arguments;
}

ExperimentSource::ExperimentSource(const std::string& path, std::span<const std::string> sets)
    : file(ConfigNode::load(path)) {
  std::vector<std::string> allowed = member_names();
  allowed.insert(allowed.end(), kOthers.begin(), kOthers.end());
  file.allow_only(allowed);
  const std::vector<Axis> axes = axes_of(file, sets);
  std::size_t count = 1;
  for (const Axis& axis : axes) {
    count *= axis.size();
    if (count > kMaxPoints) {
      throw UserError({path, ""}, "found more than " + std::to_string(kMaxPoints) + " combinations",
                      "fewer values, or several experiments");
    }
  }
  for (std::size_t number = 0; number < count; ++number) {
    points.push_back(point_at(file, axes, number));
  }
  std::vector<std::string> required{"title"};
  for (const std::string& name : kLists) {
    if (points.front().find(name) == nullptr) required.push_back(name);
  }
  check_complete(file, required);
  swept = swept_keys(axes);
  if (contains(swept, "threads")) {
    throw UserError({path, ""}, "found several values for 'threads'",
                    "one value: results do not depend on it");
  }
  has_cases = !points.front().case_name().empty();
}

}  // namespace kvreplay
