#include "base/parameters.hpp"

#include <algorithm>
#include <cmath>

#include "base/number_text.hpp"
#include "base/size.hpp"

namespace kvreplay {
namespace {

double as_number(const Value& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return 0;
}

template <typename T>
std::optional<Value> to_value(std::optional<T> given) {
  if (!given) return std::nullopt;
  return Value{std::move(*given)};
}

}  // namespace

Parameter integer_parameter(std::string name, std::string unit,
                            std::optional<std::int64_t> default_value, Range range,
                            std::string help) {
  return {std::move(name),
          std::move(unit),
          to_value(default_value),
          std::int64_t{0},
          range.minimum,
          range.maximum,
          {},
          std::move(help)};
}

Parameter real_parameter(std::string name, std::string unit, std::optional<double> default_value,
                         Range range, std::string help) {
  return {std::move(name),
          std::move(unit),
          to_value(default_value),
          0.0,
          range.minimum,
          range.maximum,
          {},
          std::move(help)};
}

Parameter choice_parameter(std::string name, std::vector<std::string> choices,
                           std::optional<std::string> default_value, std::string help) {
  Parameter parameter = text_parameter(std::move(name), std::move(default_value), std::move(help));
  parameter.choices = std::move(choices);
  return parameter;
}

Parameter text_parameter(std::string name, std::optional<std::string> default_value,
                         std::string help) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.default_value = to_value(std::move(default_value));
  parameter.type = std::string{};
  parameter.help = std::move(help);
  return parameter;
}

Parameter flag_parameter(std::string name, std::optional<bool> default_value, std::string help) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.default_value = to_value(default_value);
  parameter.type = false;
  parameter.help = std::move(help);
  return parameter;
}

std::string type_name(const Value& value) {
  static const char* const kNames[] = {"flag", "integer", "real", "text"};
  return kNames[value.index()];
}

std::string to_text(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&value)) return shortest_text(*real);
  return std::get<std::string>(value);
}

std::string allowed_text(const Parameter& parameter) {
  if (std::holds_alternative<bool>(parameter.type)) return "true or false";
  if (std::holds_alternative<std::string>(parameter.type)) {
    return parameter.choices.empty() ? "text" : "one of " + join(parameter.choices);
  }
  std::string text = type_name(parameter.type);
  if (std::isfinite(parameter.minimum)) text += " from " + shortest_text(parameter.minimum);
  if (std::isfinite(parameter.maximum)) text += " to " + shortest_text(parameter.maximum);
  if (!parameter.unit.empty()) text += " " + parameter.unit;
  return text;
}

bool Arguments::flag(std::string_view name) const {
  return std::get<bool>(find(name).value);
}
std::int64_t Arguments::integer(std::string_view name) const {
  return std::get<std::int64_t>(find(name).value);
}
double Arguments::real(std::string_view name) const {
  return std::get<double>(find(name).value);
}
const std::string& Arguments::text(std::string_view name) const {
  return std::get<std::string>(find(name).value);
}

SourceLocation Arguments::place(std::string_view name) const {
  SourceLocation place = place_.at(name);
  const auto file = files_.find(name);
  if (file != files_.end()) place.file = file->second;
  return place;
}

const Argument& Arguments::find(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) {
    throw std::logic_error("parameter '" + std::string(name) + "' was not declared");
  }
  return found->second;
}

Arguments Arguments::defaults(std::span<const Parameter> parameters, SourceLocation place) {
  Arguments arguments;
  arguments.place_ = std::move(place);
  for (const Parameter& parameter : parameters) {
    if (!parameter.default_value) {
      throw UserError(arguments.place_, "required parameter '" + parameter.name + "' is missing",
                      allowed_text(parameter));
    }
    arguments.set(parameter, {*parameter.default_value, "", true});
  }
  return arguments;
}

void Arguments::set(const Parameter& parameter, Argument argument) {
  const auto refuse = [&] {
    return UserError(place(parameter.name),
                     "found " + type_name(argument.value) + " " + to_text(argument.value),
                     allowed_text(parameter));
  };
  const auto* given = std::get_if<std::string>(&argument.value);
  const bool is_number = std::holds_alternative<std::int64_t>(parameter.type) ||
                         std::holds_alternative<double>(parameter.type);
  if (const auto bytes =
          given != nullptr && is_number ? parse_size_with_unit(*given) : std::nullopt) {
    if (parameter.unit != "bytes") {
      throw UserError(place(parameter.name), "found the size " + *given,
                      allowed_text(parameter) + " (sizes with a unit are for bytes alone)");
    }
    argument.value = *bytes;
  }
  const auto* integer = std::get_if<std::int64_t>(&argument.value);
  if (integer != nullptr && std::holds_alternative<double>(parameter.type)) {
    argument.value = static_cast<double>(*integer);
  }
  if (argument.value.index() != parameter.type.index()) throw refuse();
  if (const auto* text = std::get_if<std::string>(&argument.value)) {
    const auto& choices = parameter.choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), *text) == choices.end()) {
      throw unknown_name(place(parameter.name), parameter.name, *text, choices);
    }
  } else if (!std::holds_alternative<bool>(argument.value)) {
    const double number = as_number(argument.value);
    if (!std::isfinite(number) || number < parameter.minimum || number > parameter.maximum) {
      throw refuse();
    }
  }
  values_.insert_or_assign(parameter.name, std::move(argument));
}

}  // namespace kvreplay
