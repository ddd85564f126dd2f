#include "tools/kvreplay/text_options.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/output_file.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/model_files.hpp"
#include "tools/kvreplay/option_values.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

void check_is_text_file(const std::string& file, const std::string& allowed) {
  if (std::filesystem::is_directory(file)) throw UserError({file, ""}, "is a folder", allowed);
  if (!std::filesystem::exists(file)) throw UserError({file, ""}, "there is no such file", allowed);
  if (!std::filesystem::is_regular_file(file)) {
    throw UserError({file, ""}, "is no regular file", allowed);
  }
}

std::vector<std::int32_t> tokenise_file(const Model& model, const std::string& file) {
  if (!model.has_tokenizer()) {
    throw UserError({model.file(), "tokenizer"}, "the model file holds none", "--token-ids");
  }
  return parse_token_ids(run_script("tokenise.py", {"encode", model.file(), file}), file);
}

}  // namespace

void add_model_option(CLI::App& command, std::string& model) {
  command
      .add_option("--model", model,
                  "A model of fetch-model by name, or a file of tools/scripts/import_model.py")
      ->required()
      ->type_name("NAME|FILE");
}

CLI::Option_group* add_text_options(CLI::App& command, TextOptions& options) {
  CLI::Option_group* text = command.add_option_group("text", "What the model reads");
  text->add_option("--text", options.text, "A UTF-8 text file")->type_name("FILE");
  text->add_option("--token-ids", options.token_ids, "Token ids, separated by white space")
      ->type_name("FILE");
  takes_traces(text->add_option("--from-trace", options.from_trace, "The token ids of a trace"))
      ->type_name("TRACE");
  text->require_option(1);
  return text;
}

void add_sampling_options(CLI::App& command, bool& generate, SamplingOptions& sampling) {
  command.add_flag("--generate", generate,
                   "The model writes the steps' tokens itself, instead of following the text");
  command
      .add_option("--temperature", sampling.temperature,
                  "Temperature of generation; 0 = always the most likely token")
      ->check(in_range(0.0, 100.0))
      ->needs("--generate")
      ->type_name("X")
      ->capture_default_str();
  command
      .add_option("--top-p", sampling.top_p,
                  "Draw from the most likely tokens that together reach this probability")
      ->check(in_range(0.0, 1.0))
      ->needs("--generate")
      ->type_name("X")
      ->capture_default_str();
}

ModelText load_text(const TextOptions& options, const Model& model) {
  if (!options.from_trace.empty()) {
    const TraceReader trace(options.from_trace);
    const TraceInfo& info = trace.info();
    return {trace.token_ids(), info.text_source, info.text_sha256, info.prompt_tokens,
            info.decode_steps()};
  }
  const std::string& file = options.text.empty() ? options.token_ids : options.text;
  check_is_text_file(file, options.text.empty() ? "a file of token ids" : "a text file");
  return {options.text.empty() ? parse_token_ids(read_text_file(file, "a text file"), file)
                               : tokenise_file(model, file),
          std::filesystem::path(file).filename().string(), sha256_file(file), std::nullopt,
          std::nullopt};
}

Chat load_chat(const std::string& file, const Model& model) {
  check_is_text_file(
      file, "a file with one turn per line, such as {\"role\": \"user\", \"content\": ...}");
  if (!model.has_tokenizer()) {
    throw UserError({model.file(), "tokenizer"}, "the model file holds none",
                    "a model file with one, for --chat");
  }
  Chat chat;
  std::istringstream lines(run_script("tokenise.py", {"chat", model.file(), file}));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string role;
    std::string kind;
    words >> role;
    if (role != "close") words >> kind;
    std::vector<std::int32_t> ids;
    for (std::int32_t id = 0; words >> id;) ids.push_back(id);
    if (role == "close") {
      chat.close = std::move(ids);
    } else {
      chat.parts.push_back({role, kind != "prefilled", std::move(ids)});
    }
  }
  if (chat.close.empty() || chat.parts.empty()) {
    throw UserError({file, ""}, "gave no turns", "a conversation in the model's chat form");
  }
  return chat;
}

std::vector<std::string> token_pieces(const Model& model) {
  std::vector<std::string> pieces;
  if (!model.has_tokenizer()) return pieces;
  std::istringstream lines(run_script("tokenise.py", {"pieces", model.file()}));
  for (std::string line; std::getline(lines, line);) {
    std::string& piece = pieces.emplace_back();
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      piece += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    }
  }
  return pieces;
}

std::vector<std::int32_t> tokenise(const Model& model, const std::string& text) {
  std::string name = (std::filesystem::temp_directory_path() / "kvreplay-text-XXXXXX").string();
  const int descriptor = ::mkstemp(name.data());
  if (descriptor < 0) throw UserError({name, ""}, "cannot be made", "a temporary file");
  ::close(descriptor);
  try {
    write_text_file(name, text);
    std::vector<std::int32_t> ids = tokenise_file(model, name);
    std::filesystem::remove(name);
    return ids;
  } catch (...) {
    std::filesystem::remove(name);
    throw;
  }
}

}  // namespace kvreplay
