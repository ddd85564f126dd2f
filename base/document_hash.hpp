#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kvreplay {

/// SHA-256 of a JSON document without its member "sha256", whatever its layout and the order of its
/// members: what that member holds in a file of ours.
[[nodiscard]] std::string document_sha256(nlohmann::json document);

}  // namespace kvreplay
