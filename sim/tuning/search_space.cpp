#include "sim/tuning/search_space.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/argument_json.hpp"
#include "policies/decide/decide.hpp"

namespace kvreplay {

using nlohmann::json;

namespace {

/// Factors that turn a number into a neighbour. Powers of a drawn exponent would depend on the
/// machine's C library.
constexpr std::array kFactors{0.25, 0.5, 0.71, 0.84, 1.19, 1.41, 2.0, 4.0};

std::span<const Parameter> parameters_of(const std::string& role, const json& member) {
  if (role == "stream") return DecideSpec::stream_parameters();
  const auto found = part_catalogue().find({role, member.at("part").get<std::string>()});
  if (found == part_catalogue().end()) return {};
  return found->second.parameters;
}

std::vector<std::string> members_with_stream() {
  std::vector<std::string> members{"stream"};
  members.insert(members.end(), SystemSpec::roles().begin(), SystemSpec::roles().end());
  return members;
}

/// A text without choices names a file, for which there are no alternatives to try.
bool can_change(const Parameter& parameter) {
  return !std::holds_alternative<std::string>(parameter.type) || parameter.choices.size() > 1;
}

template <typename T>
const T& one_of(std::span<const T> items, Random& random) {
  return items[random.below(items.size())];
}

/// Rounds to three significant digits, as many as people write.
double rounded(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return std::strtod(text.data(), nullptr);
}

/// A power of two from 1 to `max`; all are equally likely.
double power_of_two(double max, Random& random) {
  std::uint64_t powers = 1;
  while (std::ldexp(1.0, static_cast<int>(powers)) <= max) ++powers;
  return std::ldexp(1.0, static_cast<int>(random.below(powers)));
}

Value value_of(const Parameter& parameter, const json& value) {
  if (std::holds_alternative<bool>(parameter.type)) return value.get<bool>();
  if (std::holds_alternative<std::int64_t>(parameter.type)) return value.get<std::int64_t>();
  if (std::holds_alternative<double>(parameter.type)) return value.get<double>();
  return value.get<std::string>();
}

}  // namespace

Composition composition_of(const SystemSpec& system) {
  json object = json::parse(system.resolved());
  for (const SystemSpec::Member& member : system.members()) {
    for (const Parameter& parameter : member.parameters) {
      if (parameter.name != "file") continue;
      const std::filesystem::path folder =
          std::filesystem::path(member.arguments->place("file").file).parent_path();
      object[member.role]["file"] =
          std::filesystem::absolute(folder / member.arguments->text("file"))
              .lexically_normal()
              .string();
    }
  }
  return object.dump();
}

std::string system_file(const Composition& composition, const std::string& title,
                        const std::string& source) {
  const json parts = json::parse(composition);
  nlohmann::ordered_json object{{"title", title}, {"source", source}, {"differs", json::array()}};
  for (const std::string& role : members_with_stream()) {
    if (!parts.contains(role)) continue;
    nlohmann::ordered_json& member = object[role];
    if (parts[role].contains("part")) member["part"] = parts[role]["part"];
    for (const auto& [name, value] : parts[role].items()) member[name] = value;
  }
  return object.dump(2) + '\n';
}

SystemSpec system_of(const Composition& composition, const std::string& name) {
  return SystemSpec::parse(ConfigNode::parse(system_file(composition, name, "kvreplay tune"), name),
                           name);
}

SearchSpace::SearchSpace(const TraceReader& trace, SpaceOptions options)
    : trace_(trace), options_(std::move(options)) {
  const TraceInfo& info = trace.info();
  layer_bytes_ = info.tokens * info.kv_heads * info.head_dim * 4;
}

Composition SearchSpace::checked(const Composition& composition) const {
  const SystemSpec system = system_of(composition, "composition");
  for (const SystemSpec::Member& member : system.members()) {
    if (options_.excluded.contains(member.role + "/" + member.part)) {
      throw UserError({"", member.role}, "found '" + member.part + "'",
                      "a part that is not excluded");
    }
  }
  if (system.place.cache.make({})->needs_future()) {
    throw UserError({"", "cache"}, "found the oracle '" + system.place.cache.name() + "'",
                    "a cache that does not know the future");
  }
  check_decidable(trace_, {"composition", system.decide});
  return composition_of(system);
}

std::optional<Composition> SearchSpace::accept(const Composition& composition) const {
  try {
    return checked(composition);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

bool SearchSpace::is_held(const std::string& role, const std::string& parameter) const {
  const std::string key = role + "." + parameter;
  // Layers with full attention are not measured, so the recording cannot judge their number.
  return key == "stream.dense_layers" || options_.held.contains(role) ||
         options_.held.contains(key);
}

Value SearchSpace::drawn(const Parameter& parameter, const Value& now, Random& random) const {
  if (const bool* flag = std::get_if<bool>(&now)) return !*flag;
  if (const auto* text = std::get_if<std::string>(&now)) {
    std::vector<std::string> others = parameter.choices;
    std::erase(others, *text);
    return one_of<std::string>(others, random);
  }
  const bool is_integer = std::holds_alternative<std::int64_t>(now);
  const double old =
      is_integer ? static_cast<double>(std::get<std::int64_t>(now)) : std::get<double>(now);
  // Values beyond the whole recording have no further effect.
  const auto whole =
      static_cast<double>(parameter.unit == "bytes" ? layer_bytes_ : trace_.info().tokens);
  const double max = std::max(std::min(parameter.maximum, whole), old);

  // 0 often means "by another parameter" or "none", so it is tried separately.
  if (parameter.minimum <= 0 && old > 0 && random.below(8) == 0) {
    return is_integer ? Value(std::int64_t{0}) : Value(0.0);
  }
  double value = old * one_of<double>(kFactors, random);
  if (old <= 0 || random.below(4) == 0) {
    value = parameter.maximum <= 1 ? static_cast<double>(1 + random.below(20)) / 20
                                   : power_of_two(max, random);
  }
  value = std::clamp(value, parameter.minimum, max);
  if (!is_integer) return rounded(value);
  auto whole_value = static_cast<std::int64_t>(std::llround(value));
  if (whole_value == std::get<std::int64_t>(now)) {
    whole_value += static_cast<double>(whole_value) < max ? 1 : -1;
  }
  return std::max(whole_value, static_cast<std::int64_t>(std::ceil(parameter.minimum)));
}

void SearchSpace::exchange_part(json& object, Random& random) const {
  const std::string role = one_of<std::string>(SystemSpec::roles(), random);
  if (options_.held.contains(role)) return;
  json& member = object[role];
  std::vector<std::string> others;
  for (const auto& [key, part] : part_catalogue()) {
    if (key.first == role && json(key.second) != member["part"] &&
        !options_.excluded.contains(role + "/" + key.second)) {
      others.push_back(key.second);
    }
  }
  if (others.empty()) return;
  json exchanged{{"part", one_of<std::string>(others, random)}};
  for (const Parameter& parameter : parameters_of(role, exchanged)) {
    if (member.contains(parameter.name)) {
      exchanged[parameter.name] = member[parameter.name];
    } else if (parameter.default_value && can_change(parameter) && random.below(3) == 0) {
      exchanged[parameter.name] = to_json(drawn(parameter, *parameter.default_value, random));
    }
  }
  member = std::move(exchanged);
}

void SearchSpace::change_argument(json& object, Random& random) const {
  struct Gene {
    std::string role;
    const Parameter* parameter;
  };
  std::vector<Gene> genes;
  for (const std::string& role : members_with_stream()) {
    for (const Parameter& parameter : parameters_of(role, object[role])) {
      if (!can_change(parameter) || is_held(role, parameter.name)) continue;
      if (object[role].contains(parameter.name)) genes.push_back({role, &parameter});
    }
  }
  if (genes.empty()) return;
  const Gene& gene = one_of<Gene>(genes, random);
  json& value = object[gene.role][gene.parameter->name];
  value = to_json(drawn(*gene.parameter, value_of(*gene.parameter, value), random));
}

Composition SearchSpace::mutate(const Composition& composition, int changes, Random& random) const {
  json object = json::parse(composition);
  for (int i = 0; i < changes; ++i) {
    if (options_.any_part && random.below(3) == 0) {
      exchange_part(object, random);
    } else {
      change_argument(object, random);
    }
  }
  return object.dump();
}

Composition SearchSpace::cross(const Composition& first, const Composition& second,
                               Random& random) const {
  json child = json::parse(first);
  const json other = json::parse(second);
  for (const std::string& role : members_with_stream()) {
    const bool same = role == "stream" || child[role]["part"] == other.at(role).at("part");
    if (!same) {
      if (random.below(2) == 0 && !options_.held.contains(role)) child[role] = other.at(role);
      continue;
    }
    for (const auto& [name, value] : other.at(role).items()) {
      if (random.below(2) == 0 && !is_held(role, name)) child[role][name] = value;
    }
  }
  return child.dump();
}

}  // namespace kvreplay
