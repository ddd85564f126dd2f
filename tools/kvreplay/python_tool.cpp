#include "tools/kvreplay/python_tool.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <vector>

#include "sim/base/error.hpp"

namespace kvreplay {

void run_python_tool(const std::string& name, std::span<const std::string> arguments) {
  // -B: no cache of compiled files in the source tree.
  std::vector<std::string> words = {"/usr/bin/python3", "-B", KVREPLAY_SOURCE_DIR "/tools/" + name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  std::cout.flush();
  pid_t child = 0;
  const int error =
      ::posix_spawn(&child, pointers.front(), nullptr, nullptr, pointers.data(), environ);
  if (error != 0) {
    throw UserError({words.front(), ""},
                    std::string("cannot be run (") + std::strerror(error) + ")",
                    "Python 3 with the packages of tools/setup");
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw UserError({words[2], ""}, "failed", "Python 3 with the packages of tools/setup");
  }
}

}  // namespace kvreplay
