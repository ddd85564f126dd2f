#include "tools/kvreplay/python_tool.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "base/build_info.hpp"
#include "base/error.hpp"

namespace kvreplay {

namespace {

constexpr const char* kAllowed =
    "Python 3 with h5py, jsonschema, matplotlib, numpy, pandas and tqdm";

/// In the form that system calls take.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

UserError cannot_be_run(const std::string& python, int error) {
  return {{python, ""}, std::string("cannot be run (") + std::strerror(error) + ")", kAllowed};
}

}  // namespace

std::vector<std::string> python_tool_words(const std::string& name,
                                           std::span<const std::string> arguments) {
  const char* named = std::getenv("KVREPLAY_PYTHON");
  // -B: do not write compiled files into the source tree.
  std::vector<std::string> words = {named == nullptr || *named == '\0' ? "python3" : named, "-B",
                                    data_folder() + "/tools/python/kvreplay", name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

void run_python_tool(const std::string& name, std::span<const std::string> arguments) {
  std::vector<std::string> words = python_tool_words(name, arguments);
  const std::vector<char*> pointers = pointers_to(words);
  std::cout.flush();
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, pointers.front(), nullptr, nullptr, pointers.data(), environ);
  if (error != 0) throw cannot_be_run(words.front(), error);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw UserError({"kvreplay." + name, ""}, "failed", kAllowed);
  }
}

void become_python_tool(const std::string& name, std::span<const std::string> arguments) {
  std::vector<std::string> words = python_tool_words(name, arguments);
  const std::vector<char*> pointers = pointers_to(words);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  ::setenv("KVREPLAY_PROGRAM", program.c_str(), 1);
  ::execvp(words.front().c_str(), pointers.data());
  throw cannot_be_run(words.front(), errno);
}

}  // namespace kvreplay
