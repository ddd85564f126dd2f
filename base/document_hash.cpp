#include "base/document_hash.hpp"

#include <nlohmann/json.hpp>

#include "base/hash.hpp"

namespace kvreplay {

std::string document_sha256(nlohmann::json document) {
  document.erase("sha256");
  return sha256_text(document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace kvreplay
