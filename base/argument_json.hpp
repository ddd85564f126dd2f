#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/parameters.hpp"

namespace kvreplay {

[[nodiscard]] nlohmann::json to_json(const Value& value);
/// {name: value}, without sources: the values that results depend on.
[[nodiscard]] nlohmann::json to_json(const Arguments& arguments);
/// The same with "part": a chosen part in the form of its config.
[[nodiscard]] nlohmann::json part_json(const std::string& name, const Arguments& arguments);

}  // namespace kvreplay
