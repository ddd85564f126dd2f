#include "base/utf8.hpp"

#include <nlohmann/json.hpp>

namespace kvreplay {

void check_utf8(std::string_view text, const SourceLocation& place) {
  try {
    (void)nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw UserError(place, "found bytes that are no UTF-8", "text in UTF-8");
  }
}

}  // namespace kvreplay
