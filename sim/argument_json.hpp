#pragma once

#include <nlohmann/json_fwd.hpp>

#include "sim/base/parameters.hpp"

namespace kvreplay {

[[nodiscard]] nlohmann::json to_json(const Value& value);
/// {name: value}, without sources: what results depend on.
[[nodiscard]] nlohmann::json to_json(const Arguments& arguments);

}  // namespace kvreplay
