#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/models/chat.hpp"
#include "sim/models/model_file.hpp"
#include "sim/models/model_text.hpp"
#include "sim/models/next_token.hpp"

namespace CLI {
class App;
class Option_group;
}  // namespace CLI

namespace kvreplay {

/// The text that a model reads. Exactly one member is given.
struct TextOptions {
  std::string text;
  std::string token_ids;
  std::string from_trace;
};

/// --model: a name of fetch-model or a file, for find_model().
void add_model_option(CLI::App& command, std::string& model);

/// Returns the group, of which exactly one option is to be given.
CLI::Option_group* add_text_options(CLI::App& command, TextOptions& options);

/// --generate, --temperature and --top-p; the seed is the command's own.
void add_sampling_options(CLI::App& command, bool& generate, SamplingOptions& sampling);

[[nodiscard]] ModelText load_text(const TextOptions& options, const Model& model);

/// A conversation, one JSON object per line, in the model's chat form. UserError where the model
/// has none, or for a line that is no turn.
[[nodiscard]] Chat load_chat(const std::string& file, const Model& model);

/// The bytes of each token by its id; none where the model file holds no tokenizer.
[[nodiscard]] std::vector<std::string> token_pieces(const Model& model);

/// Token ids of a piece of text. UserError where the model file holds no tokenizer.
[[nodiscard]] std::vector<std::int32_t> tokenise(const Model& model, const std::string& text);

}  // namespace kvreplay
