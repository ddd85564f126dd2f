#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "tools/kvreplay/commands.hpp"

namespace kvreplay {
namespace {

constexpr int kUserMistake = 2;
constexpr int kOurMistake = 1;

int fail(const std::string& message, int code) {
  std::cerr << "kvreplay: " << message << '\n';
  return code;
}

/// CLI11 says what is wrong; this adds what would have been right.
UserError command_line_error(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App* command = &program;
  if (!program.get_subcommands().empty()) command = program.get_subcommands().front();
  const std::vector<std::string> unexpected = command->remaining();

  std::vector<std::string> names;
  if (command == &program) {
    for (const CLI::App* other : program.get_subcommands({})) names.push_back(other->get_name());
  }
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  if (unexpected.empty()) {
    return UserError({command->get_name(), ""}, error.what(),
                     command == &program ? join(names) : "");
  }
  const std::string_view kind = command == &program ? "command" : "argument";
  return unknown_name({command == &program ? "" : command->get_name(), ""}, kind,
                      unexpected.front(), names);
}

int run(int argc, char** argv) {
  CLI::App program(
      "Replays a recorded LLM's keys, values and queries through KV-cache policies and "
      "times them on modelled flash devices.");
  program.name("kvreplay");
  program.set_version_flag("--version", "kvreplay " KVREPLAY_VERSION);
  program.require_subcommand(1);
  program.footer(
      "Start with:  kvreplay run configs/experiments/first.json\n"
      "             kvreplay list systems\n"
      "             kvreplay explain kvswap\n"
      "             kvreplay COMMAND --help");
  add_run(program);
  add_list(program);
  add_explain(program);
  add_inspect(program);
  add_verify(program);
  add_cut(program);

  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    program.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    throw command_line_error(program, error);
  }
  std::cout.flush();
  if (!std::cout) throw UserError({"standard output", ""}, "cannot be written", "");
  return 0;
}

}  // namespace
}  // namespace kvreplay

int main(int argc, char** argv) {
  // A file-size limit is then an error of the write, as a full disk is, with its one-line message.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return kvreplay::run(argc, argv);
  } catch (const kvreplay::UserError& error) {
    return kvreplay::fail(error.what(), kvreplay::kUserMistake);
  } catch (const std::exception& error) {
    return kvreplay::fail(std::string("internal error: ") + error.what(), kvreplay::kOurMistake);
  }
}
