#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/models/model_file.hpp"
#include "sim/models/model_text.hpp"

namespace CLI {
class App;
}

namespace kvreplay {

/// The text that a model reads. Exactly one member is given.
struct TextOptions {
  std::string text;
  std::string token_ids;
  std::string from_trace;
};

void add_text_options(CLI::App& command, TextOptions& options);

[[nodiscard]] ModelText load_text(const TextOptions& options, const Model& model);

/// Token ids of a piece of text. Throws UserError where the model file holds no tokenizer.
[[nodiscard]] std::vector<std::int32_t> tokenise(const Model& model, const std::string& text);

}  // namespace kvreplay
