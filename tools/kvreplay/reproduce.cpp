#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "tools/kvreplay/commands.hpp"

namespace kvreplay {
namespace {

/// tools/reproduce.py takes this process's place and runs this program for each experiment.
[[noreturn]] void become_script(std::vector<std::string> words) {
  const std::string python = "/usr/bin/python3";
  // -B: no cache of compiled files in the source tree.
  words.insert(words.begin(), {python, "-B", KVREPLAY_SOURCE_DIR "/tools/reproduce.py"});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  ::setenv("KVREPLAY_PROGRAM", program.c_str(), 1);
  ::execv(python.c_str(), pointers.data());
  throw UserError({python, ""}, std::string("cannot be run (") + std::strerror(errno) + ")",
                  "Python 3 with the packages of tools/setup");
}

}  // namespace

void add_reproduce(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "reproduce", "Set what five papers report beside what their experiments give here");
  // The script has the options and their help.
  command->set_help_flag();
  command->prefix_command();
  command->callback([command] { become_script(command->remaining()); });
}

}  // namespace kvreplay
