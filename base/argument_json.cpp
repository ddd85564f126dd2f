#include "base/argument_json.hpp"

#include <nlohmann/json.hpp>

namespace kvreplay {

nlohmann::json to_json(const Value& value) {
  return std::visit([](const auto& scalar) { return nlohmann::json(scalar); }, value);
}

nlohmann::json to_json(const Arguments& arguments) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, argument] : arguments.all()) object[name] = to_json(argument.value);
  return object;
}

nlohmann::json part_json(const std::string& name, const Arguments& arguments) {
  nlohmann::json object = to_json(arguments);
  object["part"] = name;
  return object;
}

}  // namespace kvreplay
