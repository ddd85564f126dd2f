#include "tools/kvreplay/model_files.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "tools/kvreplay/helper_messages.hpp"

extern char** environ;

namespace kvreplay {
namespace {

constexpr const char* kEnding = ".kvmodel";

/// What fetch-model gets, and what is in its folder.
std::vector<std::string> model_names() {
  std::set<std::string> names;
  std::ifstream file(data_folder() + "/tools/scripts/models.json");
  const auto models = nlohmann::json::parse(file, nullptr, false);
  if (models.is_object()) {
    for (const auto& [name, model] : models.items()) names.insert(name);
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(model_folder(), error)) {
    if (entry.path().extension() == kEnding) names.insert(entry.path().stem().string());
  }
  return {names.begin(), names.end()};
}

}  // namespace

std::string model_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::string(cache) + "/kvreplay/models";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') {
    throw UserError({"environment", "HOME"}, "not set", "a folder, or XDG_CACHE_HOME");
  }
  return std::string(home) + "/.cache/kvreplay/models";
}

std::string find_model(const std::string& name_or_file) {
  const auto refuse = [&](const std::string& found, const std::string& more) {
    throw UserError({"--model", ""}, name_or_file + " is " + found,
                    "a model of `kvreplay fetch-model`, or a .kvmodel file" + more);
  };
  if (name_or_file.ends_with(".h5")) refuse("a trace, which holds no weights", "");
  if (name_or_file.ends_with(".gguf")) {
    refuse("no model file yet", " (tools/scripts/python-env tools/scripts/import_model.py " +
                                    name_or_file + " NAME.kvmodel makes one)");
  }
  if (name_or_file.ends_with(".json")) refuse("a shape, which holds no weights", "");
  if (std::filesystem::is_directory(name_or_file) && name_or_file.find('/') != std::string::npos) {
    refuse("a folder",
           " (tools/scripts/import_model.py makes one of a folder in Hugging Face's "
           "form)");
  }
  if (name_or_file.find('/') != std::string::npos || name_or_file.ends_with(kEnding)) {
    return name_or_file;
  }
  std::string file = model_folder() + "/" + name_or_file + kEnding;
  if (std::filesystem::exists(file)) return file;
  if (std::filesystem::is_regular_file(name_or_file)) return name_or_file;  // says what it lacks
  const std::vector<std::string> names = model_names();
  const std::string near = nearest_name(name_or_file, names);
  const bool is_name = std::find(names.begin(), names.end(), name_or_file) != names.end();
  throw UserError({"--model", ""},
                  "there is no " + file +
                      (is_name        ? "; `kvreplay fetch-model " + name_or_file + "` gets it"
                       : near.empty() ? ""
                                      : " (did you mean '" + near + "'?)"),
                  "a model of `kvreplay fetch-model` (" + join(names) +
                      "), or a file of tools/scripts/import_model.py");
}

std::string run_script(const std::string& script, const std::vector<std::string>& arguments) {
  const std::string folder = data_folder() + "/tools/scripts/";
  std::vector<std::string> words = {folder + "python-env", folder + script};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw UserError({script, ""}, std::strerror(errno), "a pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  HelperMessages messages;
  posix_spawn_file_actions_adddup2(&actions, messages.descriptor(), STDERR_FILENO);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, words.front().c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  messages.started();

  std::string output;
  char buffer[1 << 16];
  while (error == 0) {
    const ssize_t count = ::read(ends[0], buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    output.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  if (error != 0) throw UserError({words.front(), ""}, std::strerror(error), "a program to run");
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  const std::string last = messages.finish(failed);
  if (failed) throw helper_error("tools/scripts/" + script, last, status);
  return output;
}

std::vector<std::int32_t> parse_token_ids(const std::string& text, const std::string& source) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::int32_t> ids;
  for (std::size_t begin = text.find_first_not_of(kSpace); begin != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    if (error != std::errc{} || stop != text.data() + end) {
      throw UserError({source, ""}, "'" + text.substr(begin, end - begin) + "'",
                      "token ids, separated by white space");
    }
    ids.push_back(id);
    begin = text.find_first_not_of(kSpace, end);
  }
  return ids;
}

}  // namespace kvreplay
