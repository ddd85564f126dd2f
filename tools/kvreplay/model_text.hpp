#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/models/model_file.hpp"

namespace CLI {
class App;
}

namespace kvreplay {

/// What a model is to read: exactly one is given.
struct TextOptions {
  std::string text;
  std::string token_ids;
  std::string from_trace;
};

void add_text_options(CLI::App& command, TextOptions& options);

/// Token ids and what a trace says of their source.
struct ModelText {
  std::vector<std::int32_t> ids;
  std::string source;
  std::string sha256;
  std::optional<std::int64_t> prompt_tokens;  ///< of the trace, where it came from one
  std::optional<std::int64_t> steps;
};

[[nodiscard]] ModelText load_text(const TextOptions& options, const Model& model);

/// Token ids of a piece of text. UserError where the model file holds no tokenizer.
[[nodiscard]] std::vector<std::int32_t> tokenise(const Model& model, const std::string& text);

}  // namespace kvreplay
