#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvreplay {

/// The text that a model reads: token ids, and what a trace says about their source.
struct ModelText {
  std::vector<std::int32_t> ids;
  std::string source;
  std::string sha256;
  std::optional<std::int64_t> prompt_tokens;  ///< of the trace, where the text came from one
  std::optional<std::int64_t> steps;
};

}  // namespace kvreplay
