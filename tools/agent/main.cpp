// kvreplay-agent [--remove-self]: does I/O on the machine where it runs, for a kvreplay elsewhere.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <string_view>

#include "base/hash.hpp"
#include "tools/agent/session.hpp"

int main(int argc, char** argv) {
  const bool remove_self = argc == 2 && std::string_view(argv[1]) == "--remove-self";
  if (argc > 1 && !remove_self) {
    std::fputs(
        "kvreplay-agent " KVREPLAY_VERSION
        ": started by `kvreplay device` on a connected device; it speaks frames on standard input "
        "and output.\n  --remove-self   remove this program's file at once\n",
        stderr);
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const std::string sha256 = kvreplay::sha256_file("/proc/self/exe");
    // The program's file is removed, whatever ends the process.
    if (remove_self) ::unlink(argv[0]);
    // Never destroyed: its threads use it for as long as the process lives.
    auto* session = new kvreplay::Session(STDIN_FILENO, STDOUT_FILENO, sha256);
    session->run();
    ::_exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvreplay-agent: %s\n", error.what());
    ::_exit(2);
  }
}
